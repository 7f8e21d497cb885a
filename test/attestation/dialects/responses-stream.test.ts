import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ResponsesReader } from '#attestation/dialects/responses/read-stream.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { rowsByCode } from '../../support/case-table.ts'
import { alter, anyAlterations, change as changeIn } from './alter-events.ts'
import { dataOf, readAll, responsesReadings } from './readers.ts'
import { type BuiltItem, responseOf, responsesStream } from './responses-streams.ts'

const ITEMS: readonly BuiltItem[] = [
  { kind: 'reasoning', id: 'rs_1', pieces: ['I ', 'look'] },
  { kind: 'message', id: 'msg_1', pieces: ['Hel', 'lo'] },
  { kind: 'call', id: 'fc_1', pieces: ['{"path":', '"a.txt"}'] },
]
const STREAM = responsesStream(ITEMS)

const read = (events: readonly JsonObject[]) => readAll(new ResponsesReader(), events)

type Edit = (event: JsonObject) => readonly JsonObject[]
const change = (matches: (event: JsonObject) => boolean, edit: Edit) =>
  changeIn(STREAM, matches, edit)
const ofType = (type: string) => (event: JsonObject) => event.type === type

it('the reader gives out every event of a whole stream as it came', () => {
  const { given, code } = read(STREAM)
  expect(code).toBeNull()
  expect(dataOf(given)).toEqual(STREAM)
})

it('the reader of Responses ends with the final response, and gives nothing after it', () => {
  const reader = new ResponsesReader()
  readAll(reader, STREAM)
  expect(reader.isEnded).toBe(true)
  expect(reader.response()).toEqual(STREAM.at(-1)?.response)
  expect(readAll(reader, [...STREAM]).given).toEqual([])
})

it('the reader has not ended before its last event', () => {
  for (let length = 0; length < STREAM.length; length++) {
    const reader = new ResponsesReader()
    expect(readAll(reader, STREAM.slice(0, length)).code).toBeNull()
    expect(reader.isEnded).toBe(false)
  }
})

it('the reader gives the answer as far as events came', () => {
  const reader = new ResponsesReader()
  const at = STREAM.findIndex(ofType('response.output_text.delta'))
  readAll(reader, STREAM.slice(0, at + 1))
  const { output } = reader.response() as { readonly output: readonly JsonObject[] }
  expect(output).toHaveLength(2)
  expect(output[1]).toMatchObject({ content: [{ type: 'output_text', text: 'Hel' }] })
})

/** The stream with these members in its final response. */
const endingWith = (members: JsonObject) =>
  change(ofType('response.completed'), (event) => [
    { ...event, response: { ...(event.response as JsonObject), ...members } },
  ])
/** The stream with other members in its first event of this type, and of this item. */
const edited = (type: string, members: JsonObject, index?: number) =>
  change(ofItem(type, index), (event) => [{ ...event, ...members }])
/** The stream with another text in its first event of this type, and of this item. */
const reworded = (type: string, from: string, to: string, index?: number) =>
  change(ofItem(type, index), (event) => [JSON.parse(JSON.stringify(event).replaceAll(from, to))])
const ofItem = (type: string, index?: number) => (event: JsonObject) =>
  event.type === type && (index === undefined || event.output_index === index)
/** The stream with an event before the first of this type. */
const putBefore = (type: string, added: JsonObject) =>
  change(ofType(type), (event) => [added, event])
const putAfter = (type: string, added: JsonObject) =>
  change(ofType(type), (event) => [event, added])
const rewritten = (from: string, to: string): readonly JsonObject[] =>
  JSON.parse(JSON.stringify(STREAM).replaceAll(from, to))
const itemEvent = (verb: string, output_index: number, item: JsonObject): JsonObject => ({
  type: `response.output_item.${verb}`,
  output_index,
  item,
})
const endOfMessage = (from: string, to: string) =>
  reworded('response.output_item.done', from, to, 1)
const endOfCall = (from: string, to: string) => reworded('response.output_item.done', from, to, 2)
const output = (STREAM.at(-1) as { readonly response: { readonly output: readonly JsonObject[] } })
  .response.output
const late = {
  type: 'response.output_text.delta',
  output_index: 1,
  content_index: 0,
  delta: '!',
}
const textPart = (text: string) => ({ type: 'output_text', text, annotations: [] })

it.each(
  Object.entries<readonly JsonObject[]>({
    'a stream without sequence numbers': STREAM.map(({ sequence_number: _, ...event }) => event),
    'a final output that is empty': endingWith({ output: [] }),
    'a final output in another order': endingWith({ output: output.toReversed() }),
    'unknown events': STREAM.flatMap((event) => [event, { type: 'response.rate_limits' }]),
    'keep-alives': STREAM.flatMap((event) => [{ type: 'keepalive' }, event]),
    'missing ends of texts and parts': STREAM.filter(
      ({ type }) => !/(text|arguments|part)\.done$/.test(String(type)),
    ),
    'missing begins of parts': STREAM.filter(({ type }) => !/part\.added$/.test(String(type))),
    'events without output_index': STREAM.map(({ output_index: _, ...event }) => event),
    'events without item_id': STREAM.map(({ item_id: _, ...event }) => event),
    'events without the index of the part': STREAM.map(
      ({ content_index: _, summary_index: __, ...event }) => event,
    ),
    'events after the last': [...STREAM, ...STREAM],
    'a text that SDKs compute': endingWith({ output_text: 'EVIL' }),
    'members of the final items that differ without a text': reworded(
      'response.completed',
      '"completed"}',
      '"done"}',
    ),
    'events whose item_id is null': STREAM.map((event) =>
      event.item_id === undefined ? event : { ...event, item_id: null },
    ),
    'a proof of the provider in an event': edited('response.completed', { affidavit: {} }),
    'a proof of the provider in the response': endingWith({ affidavit: {} }),
  }),
)('the reader settles %s', (_, events) => {
  const { given, code } = read(events)
  expect(code).toBeNull()
  expect(dataOf(given)).toEqual(STREAM)
})

/** Expects what a settled stream is: one answer to all readers, and to a second reader. */
function expectSettled(events: readonly JsonObject[], response: unknown) {
  const reader = new ResponsesReader()
  const { given, code } = readAll(reader, events)
  expect(code).toBeNull()
  expect(reader.response()).toEqual(response)
  expect(new Set(responsesReadings(given)).size).toBe(1)
  const second = new ResponsesReader(false)
  for (const event of given) expect(second.read(event)).toEqual([event])
  return given
}

/** The events in an order in which the second item ends before the first. */
const overlapping = () => {
  const ofFirst = STREAM.filter(({ output_index }) => output_index === 0)
  const rest = STREAM.filter(({ output_index }) => output_index !== 0)
  const at = rest.findIndex(ofItem('response.output_item.done', 1))
  return [
    ...rest.slice(0, 2),
    ...ofFirst.slice(0, 3),
    ...rest.slice(2, at + 1),
    ...ofFirst.slice(3),
    ...rest.slice(at + 1),
  ]
}
const isEndOfText = ({ type }: JsonObject) => /(text|arguments)\.done$/.test(String(type))

it.each(
  Object.entries<readonly JsonObject[]>({
    'final items with other ids': reworded('response.completed', 'msg_1', 'msg_2'),
    // https://github.com/vllm-project/vllm/pull/47916
    'a final call with another id of the call': reworded('response.completed', 'fc_1', 'fc_2'),
    // https://github.com/vllm-project/vllm/pull/31761
    'ends of texts and items at the index of the next': STREAM.map((event) =>
      String(event.type).endsWith('.done') && Number(event.output_index) < 2
        ? { ...event, output_index: Number(event.output_index) + 1 }
        : event,
    ),
    'a start of an item at the index of another': edited(
      'response.output_item.added',
      { output_index: 1 },
      2,
    ),
    'one count of parts for all items': STREAM.map((event) =>
      event.content_index === undefined ? event : { ...event, content_index: 4 },
    ),
    'one count of parts whose starts are left out': STREAM.filter(
      ({ type }) => type !== 'response.content_part.added',
    ).map((event) => (event.content_index === undefined ? event : { ...event, content_index: 4 })),
    'a final answer that lacks an item': endingWith({ output: output.slice(1) }),
    'a response.created that is repeated': [STREAM[0] as JsonObject, ...STREAM],
    'a stream without response.created': STREAM.slice(1),
    'a beginning after an item': putBefore('response.completed', STREAM[1] as JsonObject),
    'an item whose end only the final answer has': change(
      ofItem('response.output_item.done', 2),
      () => [],
    ),
    'an item of which only the final answer tells': STREAM.filter(
      ({ output_index }) => output_index !== 2,
    ),
    'a stream of its last event alone': STREAM.slice(-1),
    // https://github.com/earendil-works/pi/issues/6009
    'an end of an item before the end of an earlier one': overlapping(),
    // https://github.com/openai/codex/issues/30876
    'two messages at once': [
      ...STREAM.slice(0, 2),
      ...STREAM.filter(({ output_index }) => output_index === 0),
      ...STREAM.filter(({ type }) => type === 'response.output_item.added').slice(1),
      ...STREAM.filter(
        ({ type, output_index }) =>
          Number(output_index) > 0 && type !== 'response.output_item.added',
      ).toSorted((one, other) => Number(isEndOfText(one)) - Number(isEndOfText(other)) || 0),
      ...STREAM.slice(-1),
    ].filter(({ type }) => !/text\.done|part\.done|arguments\.done/.test(String(type))),
    'texts that only their ends have': STREAM.filter(({ type }) => !/\.delta$/.test(String(type))),
    // https://github.com/Soju06/codex-lb/issues/504
    'texts that only the ends of items have': STREAM.filter(({ type }) =>
      /response\.(output_item\.(added|done)|created|completed)$/.test(String(type)),
    ),
    'ends that lack their texts': STREAM.map((event) =>
      isEndOfText(event) ? { ...event, text: '', arguments: '' } : event,
    ).map(({ text, arguments: input, ...event }) =>
      isEndOfText(event)
        ? event
        : {
            ...event,
            ...(text === undefined ? {} : { text }),
            ...(input === undefined ? {} : { arguments: input }),
          },
    ),
    'ends of texts and items that are repeated': STREAM.flatMap((event) =>
      isEndOfText(event) || event.type === 'response.output_item.done' ? [event, event] : [event],
    ),
    'one index for all items': STREAM.map((event) =>
      event.output_index === undefined ? event : { ...event, output_index: 0 },
    ),
    'another id of the item in each event': STREAM.map((event, at) =>
      event.item_id === undefined ? event : { ...event, item_id: `x_${at}` },
    ),
    'an id of the item that its start lacks': STREAM.map((event) =>
      event.type === 'response.output_item.added'
        ? { ...event, item: { ...(event.item as JsonObject), id: null, call_id: null } }
        : event,
    ),
    'a name and an id of a call that its start lacks': reworded(
      'response.output_item.added',
      '"call_id":"call_fc_1","name":"read_file"',
      '"call_id":"","name":""',
      2,
    ),
    'arguments that the start of a call has': STREAM.filter(
      ({ type }) => !String(type).includes('arguments'),
    ).map((event) =>
      event.type === 'response.output_item.added' && event.output_index === 2
        ? { ...event, item: { ...(event.item as JsonObject), arguments: '{"path":"a.txt"}' } }
        : event,
    ),
    'arguments that the start of a call has as a placeholder': reworded(
      'response.output_item.added',
      '"arguments":""',
      '"arguments":"{}"',
      2,
    ),
    'a text that the start of a part has': change(
      ofType('response.content_part.added'),
      (event) => [{ ...event, part: textPart('Hel') }],
    ).filter(({ delta }) => delta !== 'Hel'),
    'a status of the last response that its provider did not renew': endingWith({
      status: 'in_progress',
    }),
  }),
)('the reader settles, so that all readers agree, %s', (_, events) => {
  expectSettled(events, STREAM.at(-1)?.response)
})

it('the reader gives annotations that come after the end of their part before it', () => {
  const citation = { type: 'url_citation', url: 'https://example.com' }
  const events = endOfMessage('"annotations":[]', `"annotations":[${JSON.stringify(citation)}]`)
  const given = expectSettled(events, expect.anything()).map(({ event }) => event)
  const at = given.indexOf('response.output_text.annotation.added')
  expect(at).toBeGreaterThan(0)
  expect(at).toBeLessThan(given.indexOf('response.content_part.done'))
})

// https://github.com/openai/openai-python/issues/3502
it.each(['', ' \n', '{"id":9007199254740993}'])(
  'the reader keeps the arguments %j of a call to the letter',
  (input) => {
    const call = { kind: 'call', id: 'fc_1', pieces: [input] } as const
    const events = responsesStream([call])
    expectSettled(events, events.at(-1)?.response)
  },
)

// https://github.com/experientiallabs/experiential/issues/758
it('the reader gives a call that the limit of tokens cut, as far as it came', () => {
  const call = { kind: 'call', id: 'fc_1', pieces: ['{"path":"a'] } as const
  const cut = responsesStream([call], 'incomplete')
  expectSettled(cut, cut.at(-1)?.response)
  expect(read(responsesStream([call])).code).toBe('invalid_tool_input')
  expect(read(responsesStream([call, ...ITEMS.slice(1, 2)], 'incomplete')).code).toBe(
    'invalid_tool_input',
  )
})

const REFUSED = {
  changed_text: {
    'a part with text at its start': edited('response.content_part.added', {
      part: textPart('PRE'),
    }),
    'an item whose end is not what streamed': reworded(
      'response.output_item.done',
      '"text":"Hello"',
      '"text":"Hellp"',
      1,
    ),
    'a final answer that is not what streamed': reworded(
      'response.completed',
      '"text":"Hello"',
      '"text":"Hellp"',
    ),
    'an end of a text that is not what streamed': edited('response.output_text.done', {
      text: 'Hellp',
    }),
    'an end of a part that is not what streamed': edited('response.content_part.done', {
      part: textPart('Hellp'),
    }),
  },
  late_event: {
    'text after the end of its item': putBefore('response.completed', late),
    'text after its own end': putAfter('response.output_text.done', late),
  },
  unread_member: {
    'an item with text at its start': reworded(
      'response.output_item.added',
      '"content":[]',
      `"content":[${JSON.stringify(textPart('PRE'))}]`,
      1,
    ),
    'a response that begins with output': reworded(
      'response.created',
      '"output":[]',
      `"output":${JSON.stringify(output)}`,
    ),
  },
  changed_identity: {
    'a final response with another id': endingWith({ id: 'resp_2' }),
    'a name of a function that changes': endOfCall('read_file', 'read_filf'),
    'a call id that changes': endOfCall('call_fc_1', 'call_fc_2'),
    'an item_id of another item': edited('response.output_text.delta', { item_id: 'rs_1' }),
    'a model that changes': endingWith({ model: 'm2' }),
    'an index of a part that is not behind the last': putAfter('response.content_part.added', {
      type: 'response.content_part.added',
      output_index: 1,
      content_index: 0,
      part: textPart(''),
    }),
    'an index of a part that is no number': edited('response.content_part.added', {
      content_index: '0',
    }),
    'another name beside the arguments of a function': edited(
      'response.function_call_arguments.done',
      { name: 'delete_file' },
    ),
  },
  changed_type: {
    'a delta of a text that its item cannot have': edited('response.output_text.delta', {
      type: 'response.reasoning_text.delta',
    }),
  },
  changed_finish: {
    'a status that is not that of its event': edited('response.completed', {
      type: 'response.incomplete',
    }),
    'an error in a response that is completed': endingWith({
      incomplete_details: { reason: 'x' },
    }),
  },
  upstream_failure: {
    'an error event': change(ofType('response.completed'), () => [
      { type: 'error', code: 'x', message: 'no' },
    ]),
  },
  invalid_form: { 'data without a type': [{}, ...STREAM] },
}
it.each(rowsByCode(REFUSED))('the reader refuses %s', (_, expected, events) => {
  expect(read(events).code).toBe(expected)
})

it('the reader gives annotations that a provider states only at the end of a part', () => {
  const citation = { type: 'url_citation', url: 'https://example.com' }
  const events = rewritten(
    '"text":"Hello","annotations":[]',
    `"text":"Hello","annotations":[${JSON.stringify(citation)}]`,
  )
  const { given, code } = read(events)
  expect(code).toBeNull()
  const added = given.filter(({ event }) => event === 'response.output_text.annotation.added')
  expect(added).toMatchObject([{ data: { annotation: citation, annotation_index: 0 } }])
  expect(dataOf(read(dataOf(given)).given)).toEqual(dataOf(given))
})

it('the reader gives a call that has no id the id of the call, as its events name it', () => {
  const events = JSON.parse(
    JSON.stringify(STREAM).replaceAll('"id":"fc_1",', '').replaceAll('"fc_1"', '"call_fc_1"'),
  )
  const { given, code } = read(events)
  expect(code).toBeNull()
  expect(JSON.stringify(given)).toContain('"id":"call_fc_1"')
})

it('the reader takes time in proportion to the items that have not ended', () => {
  const reader = new ResponsesReader()
  readAll(reader, STREAM.slice(0, 1))
  const items = Array.from({ length: 20_000 }, (_, at) => ({
    type: 'response.output_item.added',
    item: { type: 'web_search_call', id: `ws_${at}` },
  }))
  const before = process.cpuUsage()
  expect(readAll(reader, items).code).toBeNull()
  // Before, each item read all open ones: 5 s.
  expect(process.cpuUsage(before).user).toBeLessThan(2_000_000)
})

it('the reader writes the empty members to which readers add deltas', () => {
  const lacking = JSON.parse(
    JSON.stringify(STREAM)
      .replaceAll(/"text":"",|,"text":""/g, '')
      .replaceAll('"arguments":"",', '"arguments":null,')
      .replaceAll(/,"(?:content|summary|output)":\[\]/g, ''),
  )
  expect(lacking).not.toEqual(STREAM)
  const { given, code } = read(lacking)
  expect(code).toBeNull()
  expect(dataOf(given)).toEqual(STREAM)
})

it('the reader refuses an end that many annotations would make into far more bytes', () => {
  const annotations = JSON.stringify(Array.from({ length: 1_001 }, () => ({})))
  const events = rewritten(
    '"text":"Hello","annotations":[]',
    `"text":"Hello","annotations":${annotations}`,
  )
  expect(read(events).code).toBe('invalid_form')
})

it("the reader gives a tool's answer by the provider beside the call of the same id", () => {
  const items = [
    { type: 'shell_call', id: 'sh_1', call_id: 'call_1' },
    { type: 'shell_call_output', id: 'sho_1', call_id: 'call_1' },
  ].flatMap((item) => [
    { type: 'response.output_item.added', item },
    { type: 'response.output_item.done', item },
  ])
  expect(read([...STREAM.slice(0, 2), ...items]).code).toBeNull()
  const again = { type: 'response.output_item.added', item: { ...items[0]?.item, status: 'x' } }
  expect(read([...STREAM.slice(0, 2), ...items, again]).code).toBe('changed_identity')
})

it('the reader takes ids that are null for ids that are left out', () => {
  const items = ['ws_1', 'ws_2'].flatMap((id) =>
    ['added', 'done'].map((verb) => ({
      type: `response.output_item.${verb}`,
      item: { type: 'web_search_call', id, call_id: null },
    })),
  )
  expect(read([...STREAM.slice(0, 2), ...items]).code).toBeNull()
})

/** The code for a stream with an item that has these members at its start and at its end. */
const readItem = (type: string, start: object, end: object) =>
  read([
    ...STREAM.slice(0, 2),
    itemEvent('added', 0, { id: 'x_1', type, ...start }),
    itemEvent('done', 0, { id: 'x_1', type, ...end }),
  ]).code

// Captures of xAI and OpenAI in the fixtures of https://github.com/vercel/ai.
it.each([
  [
    'web_search_call',
    { action: { type: 'search', query: '', sources: [] } },
    { action: { type: 'search', query: 'title', sources: [{ type: 'url', url: 'https://x' }] } },
  ],
  [
    'shell_call',
    { action: { commands: [], max_output_length: null, timeout_ms: null } },
    { action: { commands: ['ls'], max_output_length: 8912, timeout_ms: null } },
  ],
  [
    'local_shell_call',
    { action: { type: 'exec', command: [], env: {} } },
    { action: { type: 'exec', command: ['ls'], env: {} } },
  ],
  [
    'apply_patch_call',
    { operation: { type: 'create_file', path: 'a', diff: '' } },
    { operation: { type: 'create_file', path: 'a', diff: '+b' } },
  ],
  ['program', { code: '', fingerprint: 'a' }, { code: 'x()', fingerprint: 'b' }],
  ['tool_search_call', { arguments: {} }, { arguments: { query: 'a' } }],
])('the reader accepts a %s whose empty members are filled at its end', (type, start, end) => {
  expect(readItem(type, start, end)).toBeNull()
})

it.each([
  ['mcp_approval_request', { arguments: '{"cmd":"ls"}' }, { arguments: '{"cmd":"rm -rf /"}' }],
  ['tool_search_call', { arguments: {}, call_id: 'call_1' }, { arguments: {}, call_id: 'call_2' }],
  ['unknown_call', { code: 'a' }, { code: 'b' }],
  ['shell_call', { action: { commands: ['ls'] } }, { action: { commands: ['rm -rf /'] } }],
  ['unknown_call', { action: { env: { A: '1' } } }, { action: {} }],
])('the reader holds the start of a %s, which has no deltas, until its end', (type, start, end) => {
  const item = { id: 'x_1', type }
  const events = [
    ...STREAM.slice(0, 2),
    itemEvent('added', 0, { ...item, ...start }),
    itemEvent('done', 0, { ...item, ...end }),
  ]
  expect(read(events.slice(0, 3)).given).toHaveLength(2)
  expect(dataOf(read(events).given)[2]).toMatchObject({ item: { ...item, ...end } })
  // An enclave has settled the stream.
  expect(readAll(new ResponsesReader(false), events).code).toBe('changed_identity')
})

it('the reader refuses a search that changes after its start was shown', () => {
  const search = (query: string) => ({ action: { type: 'search', query } })
  expect(readItem('web_search_call', search('a'), search('b'))).toBe('changed_identity')
})

it('the reader accepts a model that is stated only at the end, as llama.cpp does', () => {
  const [{ response } = {}] = STREAM
  const { model: _, ...first } = response as JsonObject
  const events = STREAM.map((event) =>
    event.type === 'response.created' || event.type === 'response.in_progress'
      ? { ...event, response: first }
      : event,
  )
  expect(read(events).code).toBeNull()
  const other = { ...first, model: 'm2' }
  const twice = events.map((event) =>
    event.type === 'response.in_progress' ? { ...event, response: other } : event,
  )
  expect(read(twice).code).toBe('changed_identity')
})

it('the reader refuses an event whose name is not its type', () => {
  const reader = new ResponsesReader()
  const [data] = STREAM as readonly [JsonObject]
  expect(() => reader.read({ event: 'ping', data })).toThrow(
    expect.objectContaining({ code: 'changed_type' }),
  )
})

it('the reader of Responses writes the name of an event that the provider left out', () => {
  const [data] = STREAM as readonly [JsonObject]
  expect(new ResponsesReader().read({ event: '', data })).toEqual([
    { event: 'response.created', data },
  ])
})

it('the reader gives a failure as its provider states it', () => {
  const reader = new ResponsesReader()
  const failed = {
    type: 'response.failed',
    response: {
      ...(STREAM[0]?.response as JsonObject),
      status: 'failed',
      error: { code: 'server_error', message: 'out of memory' },
    },
  }
  expect(readAll(reader, [...STREAM.slice(0, 11), failed]).code).toBeNull()
  expect(reader.isEnded).toBe(true)
  expect(reader.response()).toMatchObject({
    status: 'failed',
    output: [{ id: 'rs_1' }, { id: 'msg_1', status: 'incomplete' }],
  })
  const { given } = readAll(new ResponsesReader(), [...STREAM.slice(0, 11), failed])
  expect(readAll(new ResponsesReader(), dataOf(given)).given).toEqual(given)
})

it.each([
  [
    'in the final response alone',
    (items: readonly JsonObject[]) => [{ type: 'response.completed', response: responseOf(items) }],
  ],
  [
    'whose ends alone are sent',
    (items: readonly JsonObject[]) => [
      STREAM[0] as JsonObject,
      ...items.map((item) => ({ type: 'response.output_item.done', item })),
      { type: 'response.completed', response: responseOf(items) },
    ],
  ],
])('the reader gives each of the items without ids %s', (_, eventsOf) => {
  const items = ['a', 'b', 'b'].map((text) => ({
    type: 'message',
    role: 'assistant',
    content: [textPart(text)],
  }))
  const output = items.map((item, at) => ({ ...item, id: `item_${at}` }))
  expectSettled(eventsOf(items), expect.objectContaining({ output }))
})

it.each(['annotation', 'end'])('the reader begins a part whose first event is its %s', (first) => {
  const annotation = { type: 'url_citation', url: 'u' }
  const part = { type: 'output_text', text: '', annotations: [annotation] }
  const item = { id: 'm', type: 'message', role: 'assistant', content: [] }
  const place = { output_index: 0, content_index: 0 }
  const added = { type: 'response.output_text.annotation.added', ...place, annotation }
  const response = responseOf([{ ...item, content: [part] }])
  expectSettled(
    [
      { type: 'response.created', response: responseOf([], 'in_progress') },
      itemEvent('added', 0, item),
      ...(first === 'annotation' ? [{ ...added, annotation_index: 0 }] : []),
      { type: 'response.content_part.done', ...place, part },
      { type: 'response.completed', response },
    ],
    response,
  )
})

/** The reader gives what it read before it refused: the response, which is sealed, covers it. */
it.each(
  Object.entries<readonly JsonObject[]>({
    'a second part of another type': [
      ...STREAM.slice(0, 8),
      itemEvent('done', 1, {
        ...(output[1] as JsonObject),
        content: [textPart('Hello'), { type: 'audio' }],
      }),
    ],
    'an input that is a list': [
      ...STREAM.slice(0, 15),
      itemEvent('done', 2, { ...(output[2] as JsonObject), arguments: '[1]' }),
    ],
    'an item of the end that no reader can show': change(ofType('response.completed'), (event) => [
      {
        ...event,
        response: {
          ...(event.response as JsonObject),
          output: [...output, { type: 'message', role: 'user' }],
        },
      },
    ]).filter(({ type }) => !/done$/.test(String(type))),
    'another model in an event that is left out': [
      { ...(STREAM[0] as JsonObject), response: responseOf([], 'in_progress') },
      ...STREAM.slice(2, 6),
      { ...(STREAM[0] as JsonObject), response: { ...responseOf([], 'in_progress'), model: 'n' } },
    ].map((event, at) =>
      at === 0 ? { ...event, response: { ...responseOf([], 'in_progress'), model: '' } } : event,
    ),
  }),
)('the response covers the events that were given out before %s', (_, events) => {
  const [reader, second] = [new ResponsesReader(), new ResponsesReader(false)]
  for (const data of events) {
    readAll(reader, [data])
    for (const event of reader.given) expect(second.read(event)).toEqual([event])
  }
  expect(reader.isEnded).toBe(false)
  expect(reader.response()).toEqual(second.response())
})

const pieces = fc.array(fc.string({ unit: 'binary', maxLength: 5 }), { maxLength: 4 })
const item = (id: number): fc.Arbitrary<BuiltItem> =>
  fc.oneof(
    pieces.map((texts): BuiltItem => ({ kind: 'message', id: `i_${id}`, pieces: texts })),
    pieces.map((texts): BuiltItem => ({ kind: 'reasoning', id: `i_${id}`, pieces: texts })),
    fc.dictionary(fc.string(), fc.string()).map((input): BuiltItem => {
      const text = JSON.stringify(input)
      return { kind: 'call', id: `i_${id}`, pieces: [text.slice(0, 3), text.slice(3)] }
    }),
  )
const streams = fc
  .tuple(item(0), item(1), item(2))
  .chain((items) => fc.subarray(items))
  .map((items) => responsesStream(items))

it('any stream is given out as it came, and read back alike', () => {
  fc.assert(
    fc.property(streams, (events) => {
      const { given, code } = read(events)
      expect(code).toBeNull()
      expect(dataOf(given)).toEqual(events)
    }),
  )
})

it('any stream says the same to every reader, however it was altered, or is refused', () => {
  const alterations = anyAlterations('drop', 'double', 'swap', 'edit', 'retype', 'rename')
  let accepted = 0
  fc.assert(
    fc.property(streams, alterations, (events, edits) => {
      const altered = edits.reduce(alter, events)
      const reader = new ResponsesReader()
      const { given, code } = readAll(reader, altered)
      if (code !== null || !reader.isEnded) return
      accepted += 1
      expect(new Set(responsesReadings(given)).size).toBe(1)
      // What is given out is settled: it passes as it is.
      expect(dataOf(read(dataOf(given)).given)).toEqual(dataOf(given))
    }),
    { numRuns: 600 },
  )
  expect(accepted).toBeGreaterThan(12)
})
