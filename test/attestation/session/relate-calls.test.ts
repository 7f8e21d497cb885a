import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { type CallContent, relateCalls } from '#attestation/session/relate-calls.ts'
import { TURNS } from '#attestation/session/turns.ts'

type Name = keyof typeof TURNS

/** A run in one dialect: what each request has, and its answer. */
type Run = { readonly requests: readonly JsonObject[]; readonly answers: readonly JsonObject[] }

const PIXEL = 'iVBORw0KGgo='
const INPUT = { image: 1 }

const chatMessage = (message: JsonObject): JsonObject => ({
  choices: [{ index: 0, message: { role: 'assistant', ...message } }],
})
const chatCall = {
  id: 'c1',
  type: 'function',
  function: { name: 'locate', arguments: '{"image":1}' },
}
const chatAnswers: readonly JsonObject[] = [
  { reasoning_content: 'Hm.', content: 'Wait.', tool_calls: [chatCall] },
  { content: 'Rome.' },
]
const chatMessages: readonly JsonObject[] = [
  { role: 'system', content: 'Be an agent.' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'Where?' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
    ],
  },
  { role: 'assistant', content: 'Wait.', tool_calls: [chatCall] },
  { role: 'tool', tool_call_id: 'c1', content: 'Rome' },
  { role: 'assistant', content: 'Rome.' },
  { role: 'user', content: 'Thanks' },
]

const output: readonly JsonObject[] = [
  { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'Hm.' }] },
  {
    type: 'message',
    id: 'msg_1',
    status: 'completed',
    role: 'assistant',
    content: [{ type: 'output_text', text: 'Wait.', annotations: [], logprobs: [] }],
  },
  {
    type: 'function_call',
    id: 'fc_1',
    status: 'completed',
    call_id: 'c1',
    name: 'locate',
    arguments: '{"image":1}',
  },
]
const lastOutput: readonly JsonObject[] = [
  {
    type: 'message',
    id: 'msg_2',
    role: 'assistant',
    content: [{ type: 'output_text', text: 'Rome.' }],
  },
]
const input: readonly JsonObject[] = [
  {
    role: 'user',
    content: [
      { type: 'input_text', text: 'Where?' },
      { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}`, detail: 'auto' },
    ],
  },
  ...output,
  { type: 'function_call_output', call_id: 'c1', output: 'Rome' },
  ...lastOutput,
  { role: 'user', content: [{ type: 'input_text', text: 'Thanks' }] },
]

const blocks: readonly JsonObject[] = [
  { type: 'thinking', thinking: 'Hm.', signature: 'sig' },
  { type: 'text', text: 'Wait.', citations: null },
  { type: 'tool_use', id: 'c1', name: 'locate', input: INPUT },
]
const cached = { cache_control: { type: 'ephemeral' } }
const messages: readonly JsonObject[] = [
  {
    role: 'user',
    content: [
      { type: 'text', text: 'Where?', ...cached },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } },
    ],
  },
  { role: 'assistant', content: blocks },
  {
    role: 'user',
    content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'Rome', ...cached }],
  },
  { role: 'assistant', content: 'Rome.' },
  { role: 'user', content: 'Thanks' },
]

const wrapped = (dialect: Name, body: JsonObject): JsonObject => ({ dialect, headers: {}, body })

const RUNS: Readonly<Record<Name, Run>> = {
  chat: {
    requests: [2, 4, 6].map((end) => ({ messages: chatMessages.slice(0, end) })),
    answers: [...chatAnswers, { content: 'Bye.' }].map(chatMessage),
  },
  responses: {
    requests: [1, 5, 7].map((end) =>
      wrapped('responses', { instructions: 'Be an agent.', input: input.slice(0, end) }),
    ),
    answers: [
      { output },
      { output: lastOutput },
      { output: [{ type: 'message', id: 'msg_3', role: 'assistant', content: 'Bye.' }] },
    ],
  },
  messages: {
    requests: [1, 3, 5].map((end) =>
      wrapped('messages', {
        system: [{ type: 'text', text: 'Be an agent.', ...cached }],
        messages: messages.slice(0, end),
      }),
    ),
    answers: [
      { content: blocks },
      { content: [{ type: 'text', text: 'Rome.' }] },
      { content: [{ type: 'text', text: 'Bye.' }] },
    ],
  },
}
const NAMES: readonly Name[] = ['chat', 'responses', 'messages']

function bodyOf(name: Name, request: JsonObject): JsonObject {
  return name === 'chat' ? request : (request.body as JsonObject)
}

function relate(name: Name, { requests, answers }: Run) {
  const turns = TURNS[name]
  const calls: readonly CallContent[] = requests.map((request, at) => ({
    turns,
    body: bodyOf(name, request),
    response: answers[at] ?? null,
  }))
  return relateCalls(calls)
}

/** The run with a change of the JSON text of its last request. */
function changed(name: Name, from: string, to: string): Run {
  const { requests, answers } = RUNS[name]
  const text = JSON.stringify(requests[2])
  expect(text).toContain(from)
  return { answers, requests: requests.with(2, JSON.parse(text.replace(from, to))) }
}

describe.each(NAMES)('a run in the dialect %s', (name) => {
  it('the run reads the same in every dialect', () => {
    const steps = relate(name, RUNS[name]).map(({ added, answer }) =>
      [...added, ...answer].map(({ step }) => `${step.kind} ${step.name}: ${step.text}`),
    )
    expect(steps).toEqual([
      [
        'asked system: Be an agent.',
        'asked user: Where?',
        'attached image/png: SHA-256 4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6, 8 bytes',
        'thought : Hm.',
        'said : Wait.',
        'called locate: {"image":1}',
      ],
      ['returned locate: Rome', 'said : Rome.'],
      ['asked user: Thanks', 'said : Bye.'],
    ])
  })

  it('each request continues the call before it, and no answer is foreign', () => {
    const related = relate(name, RUNS[name])
    expect(related.map(({ relation }) => relation)).toEqual([
      { kind: 'starts' },
      { kind: 'continues', call: 0 },
      { kind: 'continues', call: 1 },
    ])
    expect(related.flatMap(({ foreign }) => foreign)).toEqual([])
  })

  it('the same request again is a repetition, and shows nothing again', () => {
    const { requests, answers } = RUNS[name]
    const [, second = {}, third = {}] = requests
    const related = relate(name, {
      requests: [...requests.slice(0, 2), second, third],
      answers: [...answers.slice(0, 2), ...answers.slice(1)],
    })
    expect(related[2]).toMatchObject({ relation: { kind: 'repeats', call: 1 }, added: [] })
    expect(related[3]?.relation.kind).toBe('continues')
  })

  it('a changed answer in a history is named, and the history is a break', () => {
    const related = relate(name, changed(name, 'Rome."', 'Paris."'))
    expect(related[2]?.relation).toEqual({ kind: 'continues', call: 0 })
    expect(related[2]?.foreign.map(({ item }) => item.step.text)).toEqual(['Paris.'])
  })

  it('a changed call of a tool is named with the call that it differs from', () => {
    const [from, to] =
      name === 'messages' ? ['"image":1', '"image":2'] : ['\\"image\\":1', '\\"image\\":2']
    const related = relate(name, changed(name, from, to))
    expect(related[2]?.relation).toEqual({ kind: 'rewrites', call: 1 })
    expect(related[2]?.foreign).toMatchObject([
      { item: { step: { kind: 'called', name: 'locate' } }, differsFrom: 0 },
    ])
  })

  it("a changed answer of a tool is a break, and is shown as the caller's text", () => {
    const related = relate(name, changed(name, '"Rome"', '"Oslo"'))
    expect(related[2]?.relation).toEqual({ kind: 'rewrites', call: 1 })
    expect(related[2]?.added.map(({ step }) => step.text)).toEqual(['Oslo', 'Thanks'])
    expect(related[2]?.foreign).toEqual([])
  })

  it('no request or answer of any form makes the reader fail', () => {
    const anyValue = fc.jsonValue({ maxDepth: 5 }) as fc.Arbitrary<Json>
    const anyObject = fc.dictionary(
      fc.constantFrom('messages', 'input', 'output', 'content', 'choices', 'system', 'body'),
      fc.oneof(
        anyValue,
        fc.array(fc.constantFrom<Json>(...chatMessages, ...input, ...messages, ...blocks, null, 1)),
      ),
    )
    fc.assert(
      fc.property(fc.array(fc.tuple(anyObject, anyObject), { maxLength: 4 }), (pairs) => {
        const requests = pairs.map(([body]) => (name === 'chat' ? body : wrapped(name, body)))
        const related = relate(name, { requests, answers: pairs.map(([, answer]) => answer) })
        expect(related).toHaveLength(pairs.length)
      }),
    )
  })
})

const chatAnswer = (message: JsonObject): JsonObject => ({ choices: [{ message }] })
const decoys: readonly [string, Name, JsonObject, JsonObject][] = [
  [
    'thinking under a second name',
    'chat',
    chatAnswer({ reasoning: 'Hm.', content: 'Rome.' }),
    { role: 'assistant', reasoning_content: 'Hm.', reasoning: 'EVIL', content: 'Rome.' },
  ],
  [
    'a second tool in a call',
    'chat',
    chatAnswer({ tool_calls: [{ id: 'c', custom: { name: 'n', input: 'x' } }] }),
    {
      role: 'assistant',
      tool_calls: [
        {
          id: 'c',
          type: 'custom',
          function: { name: 'n', arguments: 'x' },
          custom: { name: 'rm', input: 'EVIL' },
        },
      ],
    },
  ],
  [
    'a second input of a tool',
    'responses',
    { output: [{ type: 'custom_tool_call', call_id: 'c', name: 'n', input: 'x' }] },
    { type: 'custom_tool_call', call_id: 'c', name: 'n', arguments: 'x', input: 'EVIL' },
  ],
  [
    'another namespace of a tool',
    'responses',
    { output: [{ type: 'function_call', call_id: 'c', namespace: 'fs', name: 'n' }] },
    { type: 'function_call', call_id: 'c', namespace: 'EVIL', name: 'n' },
  ],
  [
    'another server of a tool',
    'messages',
    { content: [{ type: 'mcp_tool_use', id: 'c', server_name: 'fs', name: 'n', input: {} }] },
    {
      role: 'assistant',
      content: [{ type: 'mcp_tool_use', id: 'c', server_name: 'EVIL', name: 'n', input: {} }],
    },
  ],
]
const callIn: Readonly<Record<Name, (input: Json) => JsonObject>> = {
  chat: (input) => ({
    role: 'assistant',
    tool_calls: [{ id: 'c', function: { name: 'n', arguments: input } }],
  }),
  responses: (input) => ({ type: 'function_call', call_id: 'c', name: 'n', arguments: input }),
  messages: (input) => ({
    role: 'assistant',
    content: [{ type: 'tool_use', id: 'c', name: 'n', input }],
  }),
}

/** The foreign answers of a request whose history has `item` after the answer `response`. */
function foreignIn(name: Name, response: JsonObject, item: JsonObject) {
  const asked = { role: 'user', content: 'Where?' }
  const bodyOf = (items: Json) => ({ [name === 'responses' ? 'input' : 'messages']: items })
  const [, later] = relateCalls([
    { turns: TURNS[name], body: bodyOf([asked]), response },
    { turns: TURNS[name], body: bodyOf([asked, item]), response },
  ])
  return later?.foreign
}

/** The number of foreign answers where the model answered `answer`, and the history has `item`. */
function countForeign(name: Name, answer: JsonObject, item: JsonObject) {
  const responses: Readonly<Record<Name, JsonObject>> = {
    chat: chatAnswer(answer),
    responses: { output: [answer] },
    messages: { content: answer.content ?? [] },
  }
  return foreignIn(name, responses[name], item)?.length
}

it.each(decoys)('an answer that was changed by %s is named', (_, name, response, changed) => {
  expect(JSON.stringify(foreignIn(name, response, changed))).toContain('EVIL')
})

const WRITTEN = '{"city":"Z\u00fcrich","days":[1,2.50],"__proto__":{"a":null}}'
it.each([
  ['blanks', WRITTEN, ' { "city" : "Zürich",\n"days":[1 , 2.50], "__proto__":{"a":null}}\n'],
  ['the order of members', WRITTEN, '{"__proto__":{"a":null},"days":[1,2.50],"city":"Zürich"}'],
  ['escapes', WRITTEN, '{"c\\u0069ty":"Z\\u00FCrich","days":[1,2.5e0],"__proto__":{"a":null}}'],
  ['an empty text for {}', '', '{}'],
  ['blanks for {}', '{}', ' \n'],
])('arguments that differ only in %s are the same answer in all dialects', (_, from, to) => {
  for (const name of ['chat', 'responses'] as const)
    expect(countForeign(name, callIn[name](from), callIn[name](to))).toBe(0)
  const inputOf = (text: string): Json => (text.trim() === '' ? text : JSON.parse(text))
  const [before, after] = [callIn.messages(inputOf(from)), callIn.messages(inputOf(to))]
  expect(countForeign('messages', before, after)).toBe(0)
  const mcp = (text: string) => ({ type: 'mcp_call', id: 'm', name: 'n', arguments: text })
  expect(countForeign('responses', mcp(from), mcp(to))).toBe(0)
})

it.each([
  ['{"a":1}', '{"a":"1"}'],
  ['{"a":1}', '{"a":1,"b":null}'],
  ['{"a":[1,2]}', '{"a":[2,1]}'],
  ['{"a":1}', '[{"a":1}]'],
  ['{}', 'null'],
  ['{}', '[]'],
  ['', '""'],
  ['a', '"a"'],
  ['{"a":1,"a":2}', '{"a":2}'],
  ['{"a":1', '{"a":1 '],
  ['{"a":9007199254740993}', '{"a":9007199254740992}'],
  ['{"a":"\\ud800"}', '{"a":"\\ufffd"}'],
  ['{"a":"é"}', '{"a":"e\u0301"}'],
])('the arguments %j are not those of the answer %j', (from, to) => {
  for (const name of ['chat', 'responses'] as const)
    for (const [before, after] of [
      [from, to],
      [to, from],
    ] as const)
      expect(countForeign(name, callIn[name](before), callIn[name](after))).toBe(1)
})

it.each<[Json, Json]>([
  [{ a: 1 }, '{"a":1}'],
  [{ a: 1 }, { a: '1' }],
  [{}, []],
  ['{"a":1', '{"a":1 '],
])('the input %j of a message is not the input %j', (from, to) => {
  expect(countForeign('messages', callIn.messages(from), callIn.messages(to))).toBe(1)
})

it('the free text of a custom tool is compared as it is', () => {
  const chat = (input: string) => ({
    role: 'assistant',
    tool_calls: [{ id: 'c', custom: { name: 'n', input } }],
  })
  const responses = (input: string) => ({
    type: 'custom_tool_call',
    call_id: 'c',
    name: 'n',
    input,
  })
  for (const [from, to] of [
    ['{}', '{ }'],
    ['', ' '],
  ] as const) {
    expect(countForeign('chat', chat(from), chat(to))).toBe(1)
    expect(countForeign('responses', responses(from), responses(to))).toBe(1)
    expect(countForeign('responses', responses(from), responses(from))).toBe(0)
    expect(countForeign('responses', responses(from), callIn.responses(from))).toBe(1)
  }
})

const command = '{"cmd":"ls"}'
const tool = { name: 'sh', arguments: command }
it.each<{ readonly body: Json }>([
  { body: { name: 'sh', arguments: [command] } },
  { body: { ...tool, input: [] } },
  { body: { name: 'sh', arguments: [], input: command } },
  { body: [tool] },
  { body: [[], tool] },
])('a call of a tool with an array in place of a value is named: $body', ({ body }) => {
  const callOf = (value: Json) => ({
    tool_calls: [{ id: 'c', type: 'function', function: value }],
  })
  const requestOf = (messages: readonly Json[]) => ({ messages: [{ role: 'user' }, ...messages] })
  const response = chatAnswer(callOf(tool))
  const [, later] = relateCalls([
    { turns: TURNS.chat, body: requestOf([]), response },
    {
      turns: TURNS.chat,
      body: requestOf([{ role: 'assistant', ...callOf(body) }]),
      response,
    },
  ])
  expect(later?.foreign).toHaveLength(1)
})

it('thinking that is left out of a chat or Messages history is no break', () => {
  const { requests, answers } = RUNS.messages
  const text = JSON.stringify(requests).replaceAll(`${JSON.stringify(blocks[0])},`, '')
  const related = relate('messages', { answers, requests: JSON.parse(text) })
  expect(related.map(({ relation }) => relation.kind)).toEqual(['starts', 'continues', 'continues'])
})

it('thinking that was changed under its signature is named', () => {
  const related = relate('messages', changed('messages', 'Hm.', 'Ha.'))
  expect(related[2]?.foreign.map(({ item }) => item.step.kind)).toEqual(['thought'])
  expect(related[2]?.relation.kind).toBe('continues')
})

it.each<[string, JsonObject, number]>([
  ['known is the same thinking without a seal', { type: 'thinking', thinking: 'Hm.' }, 0],
  [
    'foreign is sealed thinking with its text',
    { type: 'thinking', thinking: 'Hm.', signature: 's' },
    1,
  ],
  [
    'foreign is encrypted thinking whose data is its text',
    { type: 'redacted_thinking', data: 'Hm.' },
    1,
  ],
])('after the thinking of a chat, %s', (_, block, foreign) => {
  const question = { role: 'user', content: 'Where?' }
  const history = { role: 'assistant', content: [block, { type: 'text', text: 'Rome.' }] }
  const related = relateCalls([
    {
      turns: TURNS.chat,
      body: { messages: [question] },
      response: chatMessage({ reasoning: 'Hm.', content: 'Rome.' }),
    },
    {
      turns: TURNS.messages,
      body: { messages: [question, history, { role: 'user', content: 'Thanks' }] },
      response: { content: [] },
    },
  ])
  expect(related[1]?.relation).toEqual({ kind: 'continues', call: 0 })
  expect(related[1]?.foreign).toHaveLength(foreign)
})

it('ids and states that are left out of a Responses history are no break', () => {
  const { requests, answers } = RUNS.responses
  const text = JSON.stringify(requests).replaceAll(/"id":"[^"]*",|"status":"completed",/g, '')
  const related = relate('responses', { answers, requests: JSON.parse(text) })
  expect(related.map(({ relation }) => relation.kind)).toEqual(['starts', 'continues', 'continues'])
  expect(related.flatMap(({ foreign }) => foreign)).toEqual([])
})

it('the text of one answer under the id of another answer is named', () => {
  const related = relate('responses', changed('responses', '"Wait."', '"Rome."'))
  expect(related[2]?.foreign).toMatchObject([{ differsFrom: 0, item: { step: { text: 'Rome.' } } }])
})

it('a call id that a server uses again links to the newest call before it', () => {
  const exchange = (name: string): readonly JsonObject[] => [
    { role: 'assistant', tool_calls: [{ id: 'c', function: { name, arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'c', content: `by ${name}` },
  ]
  const history = [{ role: 'user', content: 'Go' }, ...exchange('one'), ...exchange('two')]
  const related = relate('chat', {
    requests: [1, 3, 5].map((end) => ({ messages: history.slice(0, end) })),
    answers: [exchange('one')[0], exchange('two')[0], {}].map((one) =>
      chatMessage(one as JsonObject),
    ),
  })
  expect(related.map(({ added }) => added.at(-1)?.step.name)).toEqual(['user', 'one', 'two'])
  expect(related.flatMap(({ foreign }) => foreign)).toEqual([])
})

it('an answer with several choices is continued from each of them', () => {
  const choices = ['one', 'two'].map((content, index) => ({ index, message: { content } }))
  const question = { role: 'user', content: 'Go' }
  const next = (content: string): JsonObject => ({
    messages: [question, { role: 'assistant', content }, question],
  })
  const related = relate('chat', {
    requests: [{ messages: [question] }, next('one'), next('two')],
    answers: [{ choices }, { choices: [] }, { choices: [] }],
  })
  expect(related.map(({ relation }) => relation)).toEqual([
    { kind: 'starts' },
    { kind: 'continues', call: 0 },
    { kind: 'continues', call: 0 },
  ])
  expect(related[0]?.answer.map(({ step }) => step.name || step.text)).toEqual([
    'choice 0',
    'one',
    'choice 1',
    'two',
  ])
})

/** A conversation tree: for each call, the earlier call that it continues, or null. */
const trees = fc
  .array(fc.tuple(fc.nat(), fc.boolean()), { minLength: 1, maxLength: 25 })
  .map((nodes) => nodes.map(([pick, isRoot], at) => (at === 0 || isRoot ? null : pick % at)))

it('every request of any tree is related to its parent, and its new items are its own', () => {
  fc.assert(
    fc.property(trees, (parents) => {
      const histories: JsonObject[][] = []
      const requests = parents.map((parent, at) => {
        const before = parent === null ? [] : (histories[parent] ?? [])
        const asked = [...before, { role: 'user', content: `question ${at}` }]
        histories.push([...asked, { role: 'assistant', content: `answer ${at % 3}` }])
        return { messages: asked }
      })
      const answers = parents.map((_, at) => chatMessage({ content: `answer ${at % 3}` }))
      const related = relate('chat', { requests, answers })
      expect(related.map(({ relation }) => ('call' in relation ? relation.call : null))).toEqual(
        parents,
      )
      expect(related.map(({ added }) => added.map(({ step }) => step.text))).toEqual(
        parents.map((_, at) => [`question ${at}`]),
      )
      expect(related.flatMap(({ foreign }) => foreign)).toEqual([])
    }),
  )
})
