import fc from 'fast-check'
import { expect, it } from 'vitest'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { FormatError } from '#attestation/errors.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { rowsByCode } from '../../support/case-table.ts'
import { messageOf } from './messages-streams.ts'
import { responseOf } from './responses-streams.ts'

type Name = keyof typeof EVENT_DIALECTS

/** The answer as it is hashed, or the code of the error for which it is refused. */
function resultOf(read: () => JsonObject): JsonObject | string {
  try {
    return read()
  } catch (error) {
    if (error instanceof FormatError) return error.code
    throw error
  }
}

function readWhole(name: Name, answer: JsonObject): JsonObject | string {
  return resultOf(() => EVENT_DIALECTS[name].readAnswer(answer))
}

/** Reads the events that a reader writes out for the whole answer, as a second reader does. */
function readStreamed(name: Name, answer: JsonObject): JsonObject | string {
  return resultOf(() => {
    const { eventsOf, openStream } = EVENT_DIALECTS[name]
    const [first, second] = [openStream(), openStream(undefined, false)]
    for (const data of eventsOf(answer))
      for (const given of first.read({ event: '', data }))
        expect(second.read(given)).toEqual([given])
    expect(second.isEnded).toBe(true)
    return second.response()
  })
}

const CALL = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'f', arguments: '{}' }
const SAID = {
  type: 'message',
  id: 'm_1',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text: 'Hi', annotations: [{ type: 'url_citation' }] }],
}
const THOUGHT = { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'a' }] }
const USE = { type: 'tool_use', id: 'tu_1', name: 'f', input: { a: 1 } }

const CUT = { ...CALL, arguments: '{"a', status: 'incomplete' }

const said = (part: Json) => ({ ...SAID, content: [part] })
const thought = { type: 'summary_text', text: 'a', annotations: [{}] }
const custom = { type: 'custom_tool_call', id: 'ct_1', call_id: 'call_2', name: 'f', input: 1 }

it.each<[string, string, readonly Json[], string?]>([
  ['arguments that are no JSON', 'invalid_tool_input', [{ ...CALL, arguments: '{' }]],
  [
    'arguments that name a member twice',
    'invalid_tool_input',
    [{ ...CALL, arguments: '{"a":1,"a":2}' }],
  ],
  [
    'arguments that a limit of tokens cut and that name a member twice',
    'invalid_tool_input',
    [{ ...CUT, arguments: '{"a":1,"a":2}' }],
    'incomplete',
  ],
  ['a call that a failure cut before an item', 'invalid_tool_input', [CUT, SAID], 'failed'],
  ['two calls of one id', 'changed_identity', [CALL, { ...CALL, id: 'fc_2' }]],
  ['two items of one id', 'late_event', [CALL, { ...CALL, call_id: 'call_2' }]],
  ['a call without a name', 'invalid_form', [{ ...CALL, name: '' }]],
  ['an id that is far too long', 'invalid_form', [{ ...SAID, id: 'm'.repeat(1_025) }]],
  ['a part of an unknown type', 'changed_type', [said({ type: 'output_video', text: 'Hi' })]],
  ['a text that is a number', 'invalid_form', [said({ type: 'output_text', text: 1 })]],
  [
    'annotations that are no objects',
    'invalid_form',
    [said({ type: 'output_text', text: '', annotations: [1] })],
  ],
  ['annotations of thinking', 'invalid_form', [{ ...THOUGHT, summary: [thought] }]],
  ['the input of a tool that is a number', 'invalid_form', [custom]],
  ['a message of a user', 'invalid_form', [{ ...SAID, role: 'user' }]],
])('an answer with %s is refused, whole and as a stream', (_, code, output, status) => {
  expect(readWhole('responses', responseOf(output, status))).toBe(code)
  expect(readStreamed('responses', responseOf(output, status))).toEqual(expect.any(String))
})

it.each(
  rowsByCode<readonly Json[]>({
    changed_identity: {
      'two calls of one id': [USE, USE],
    },
    invalid_form: {
      'a call without a name': [{ ...USE, name: '' }],
      'a call without an id': [{ ...USE, id: '' }],
      'the input of a tool that is a list': [{ ...USE, input: [1] }],
      'a text that is a number': [{ type: 'text', text: 1 }],
      'citations that are no objects': [{ type: 'text', text: 'a', citations: [1] }],
      'a signature that is a number': [{ type: 'thinking', thinking: 'a', signature: 1 }],
    },
    invalid_tool_input: {
      'a number in the input of a tool that readers round': [
        { ...USE, input: { channel: 2 ** 60 } },
      ],
    },
  }),
)('a message with %s is refused, whole and as a stream', (_, code, content) => {
  expect(readWhole('messages', messageOf(content))).toBe(code)
  expect(readStreamed('messages', messageOf(content))).toEqual(expect.any(String))
})

it('a whole answer loses members called __proto__, as events do', () => {
  const named = JSON.parse('{"type":"web_search_call","id":"ws_1","action":{"__proto__":{}}}')
  expect(JSON.stringify(readWhole('responses', responseOf([named])))).not.toContain('__proto__')
  const used = { ...USE, input: JSON.parse('{"__proto__":{"a":1}}') }
  expect(readWhole('messages', messageOf([used]))).toEqual(messageOf([{ ...USE, input: {} }]))
})

it('a whole answer gets the members that deltas would fill, and the id of a call', () => {
  const { id: _, ...call } = CALL
  expect(readWhole('responses', responseOf([call]))).toEqual(
    responseOf([{ ...call, id: 'call_1' }]),
  )
  const {
    type: _t,
    role: _r,
    ...others
  } = messageOf([
    { type: 'thinking', thinking: 'a' },
    { type: 'tool_use', id: 'tu_1', name: 'f' },
  ])
  expect(readWhole('messages', others)).toEqual(
    messageOf([
      { type: 'thinking', thinking: 'a', signature: '' },
      { ...USE, input: {} },
    ]),
  )
})

it('a whole answer may hold a call that the limit of tokens cut', () => {
  const answer = responseOf([SAID, CUT], 'incomplete')
  expect(readWhole('responses', answer)).toEqual(answer)
  expect(readWhole('responses', responseOf([CUT, SAID], 'incomplete'))).toBe('invalid_tool_input')
})

it('a whole failure may hold a call that it cut, if later items did not end', () => {
  const failed = responseOf([SAID, CUT], 'failed')
  expect(readWhole('responses', failed)).toEqual(failed)
  expect(readStreamed('responses', failed)).toEqual(failed)
})

it('a whole message states its usage, as the start of its stream must', () => {
  const { usage: _, ...others } = messageOf([])
  expect(readWhole('messages', others)).toBe('invalid_form')
})

it('items and blocks of a new type pass with all their members', () => {
  const news = { type: 'new_call', id: 'n_1', arguments: [1], content: { text: 2 } }
  expect(readWhole('responses', responseOf([news]))).toEqual(responseOf([news]))
  const block = { type: 'new_block', text: 1, input: [], citations: {} }
  expect(readWhole('messages', messageOf([block]))).toEqual(messageOf([block]))
})

/** Values of a member: mostly those that providers send. */
const some = (...values: readonly fc.Arbitrary<Json>[]) =>
  fc.oneof({ weight: 20, arbitrary: fc.oneof(...values) }, WRONG)
const WRONG: fc.Arbitrary<Json> = fc.constantFrom<Json[]>(null, '', 1, [], {}, [{}], 'x')
const text = fc.string({ maxLength: 4 })
const annotations = fc.array(fc.constant<Json>({ type: 'url_citation' }), { maxLength: 2 })
const input = fc.oneof(
  fc.dictionary(fc.string({ maxLength: 3 }), fc.double({ noNaN: true, noDefaultInfinity: true })),
  fc.dictionary(fc.string({ maxLength: 3 }), fc.bigInt({ min: 0n, max: 2n ** 70n }).map(Number)),
)
const id = some(fc.nat({ max: 30 }).map((at) => `i_${at}`))
const part = (type: string, member: string) =>
  some(
    fc.record({
      type: some(fc.constant(type)),
      [member]: some(text),
      annotations: some(annotations),
    }),
  )
const item = (members: Readonly<Record<string, fc.Arbitrary<Json>>>) =>
  fc.record({ id, call_id: id, ...members })
const outputs = fc.array(
  fc.oneof(
    item({
      type: fc.constant('message'),
      role: some(fc.constant('assistant')),
      content: some(
        fc.array(fc.oneof(part('output_text', 'text'), part('refusal', 'refusal')), {
          maxLength: 2,
        }),
      ),
    }),
    item({
      type: fc.constant('reasoning'),
      summary: some(fc.array(part('summary_text', 'text'), { maxLength: 2 })),
      content: some(fc.array(part('reasoning_text', 'text'), { maxLength: 2 })),
    }),
    item({
      type: fc.constant('function_call'),
      name: some(fc.constant('f')),
      arguments: some(input.map((value) => JSON.stringify(value))),
    }),
    item({ type: fc.constant('custom_tool_call'), name: some(text), input: some(text) }),
    item({ type: fc.constant('code_interpreter_call'), code: some(text) }),
    item({ type: some(fc.constant('web_search_call')), action: some(fc.constant({})) }),
  ),
  { maxLength: 3 },
)
const contents = fc.array(
  fc.oneof(
    fc.record(
      { type: fc.constant('text'), text: some(text), citations: some(annotations), id },
      { requiredKeys: ['type'] },
    ),
    fc.record(
      { type: fc.constant('thinking'), thinking: some(text), signature: some(text) },
      { requiredKeys: ['type'] },
    ),
    fc.record({
      type: fc.constantFrom('tool_use', 'server_tool_use', 'mcp_tool_use'),
      id,
      name: some(fc.constant('f')),
      input: some(input),
    }),
    fc.record({ type: some(fc.constantFrom('compaction', 'fallback', 'new')), content: WRONG }),
  ),
  { maxLength: 3 },
)

it.each<[Name, fc.Arbitrary<JsonObject>]>([
  ['responses', outputs.map((output) => responseOf(output))],
  ['messages', contents.map(messageOf)],
])('any answer of %s is accepted whole exactly if its stream is', (name, answers) => {
  const seen = { accepted: 0, refused: 0 }
  fc.assert(
    fc.property(answers, (made) => {
      // As JSON: -0 is 0, in canonical JSON too.
      const answer = JSON.parse(JSON.stringify(made)) as JsonObject
      const [whole, streamed] = [readWhole(name, answer), readStreamed(name, answer)]
      seen[typeof whole === 'string' ? 'refused' : 'accepted'] += 1
      if (typeof whole === 'string') expect(streamed).toEqual(expect.any(String))
      else expect(streamed).toEqual(whole)
    }),
    { numRuns: 1_000 },
  )
  expect(Math.min(seen.accepted, seen.refused)).toBeGreaterThan(50)
})
