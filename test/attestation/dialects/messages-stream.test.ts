import fc from 'fast-check'
import { expect, it } from 'vitest'
import { MessagesReader } from '#attestation/dialects/messages/read-stream.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { rowsByCode } from '../../support/case-table.ts'
import { alter, anyAlterations, change as changeIn } from './alter-events.ts'
import { type BuiltBlock, builtMessage, messagesStream } from './messages-streams.ts'
import { dataOf, readAll } from './readers.ts'

const BLOCKS: readonly BuiltBlock[] = [
  { kind: 'thinking', pieces: ['I ', 'look'], signature: 'c2ln' },
  { kind: 'text', pieces: ['Hel', 'lo'], citations: [{ type: 'char_location' }] },
  { kind: 'tool', id: 'toolu_1', pieces: ['{"path":', '"a.txt"}'] },
  { kind: 'tool', id: 'toolu_2', pieces: [] },
  { kind: 'result', id: 'toolu_3' },
]
const STREAM = messagesStream(BLOCKS)
const isPing = ({ type }: JsonObject) => type === 'ping'

const read = (events: readonly JsonObject[]) => readAll(new MessagesReader(), events)

type Edit = (event: JsonObject) => readonly JsonObject[]
const change = (matches: (event: JsonObject) => boolean, edit: Edit) =>
  changeIn(STREAM, matches, edit)
const ofType = (type: string) => (event: JsonObject) => event.type === type
const ofDelta = (type: string) => (event: JsonObject) =>
  (event.delta as JsonObject | undefined)?.type === type
const startsBlock = (index: number) => (event: JsonObject) =>
  event.type === 'content_block_start' && event.index === index

it('the reader gives out every event but pings as it came', () => {
  const { given, code } = read(STREAM)
  expect(code).toBeNull()
  expect(dataOf(given)).toEqual(STREAM.filter((event) => !isPing(event)))
})

it('the reader of Messages assembles the message, and gives nothing after its end', () => {
  const reader = new MessagesReader()
  readAll(reader, STREAM)
  expect(reader.isEnded).toBe(true)
  expect(reader.response()).toEqual(builtMessage(BLOCKS))
  expect(readAll(reader, STREAM).given).toEqual([])
})

it('the reader has not ended before its last event', () => {
  for (let length = 0; length < STREAM.length; length++) {
    const reader = new MessagesReader()
    expect(readAll(reader, STREAM.slice(0, length)).code).toBeNull()
    expect(reader.isEnded).toBe(false)
  }
})

it('the reader gives the message as far as events came, the input of a tool as its text', () => {
  const reader = new MessagesReader()
  const at = STREAM.findIndex(ofDelta('input_json_delta'))
  readAll(reader, STREAM.slice(0, at + 1))
  const { content } = reader.response() as { readonly content: readonly JsonObject[] }
  expect(content.at(-1)).toMatchObject({ type: 'tool_use', input: '{"path":' })
})

it('the reader takes over what the end says beside usage', () => {
  const reader = new MessagesReader()
  readAll(
    reader,
    change(ofType('message_delta'), (event) => [
      { ...event, context_management: { applied_edits: [] } },
    ]),
  )
  expect(reader.response()).toMatchObject({ context_management: { applied_edits: [] } })
})

const textDelta = (index: number) => ({
  type: 'content_block_delta',
  index,
  delta: { type: 'text_delta', text: '!' },
})
const textBlock = (index: number) => ({
  type: 'content_block_start',
  index,
  content_block: { type: 'text', text: '' },
})
/** The stream with other members in the first event that `matches`. */
const edited = (matches: (event: JsonObject) => boolean, members: JsonObject) =>
  change(matches, (event) => [{ ...event, ...members }])
/** The stream with other members in the `member` of the first event that `matches`. */
const editedIn = (member: string, matches: (event: JsonObject) => boolean, members: JsonObject) =>
  change(matches, (event) => [
    { ...event, [member]: { ...(event[member] as JsonObject), ...members } },
  ])
const putBefore = (matches: (event: JsonObject) => boolean, added: JsonObject) =>
  change(matches, (event) => [added, event])
/** The stream with an event once more, with other members. */
const repeated = (matches: (event: JsonObject) => boolean, members: JsonObject = {}) =>
  change(matches, (event) => [event, { ...event, ...members }])
const END = ofType('message_delta')
const started = (index: number, members: JsonObject) =>
  editedIn('content_block', startsBlock(index), members)
const begun = (members: JsonObject) => editedIn('message', ofType('message_start'), members)
const REFUSED = {
  changed_type: {
    'thinking in a text block': edited(ofDelta('text_delta'), {
      delta: { type: 'thinking_delta', thinking: 'secret' },
    }),
    'a delta of a type unknown here': edited(ofDelta('text_delta'), {
      delta: { type: 'markdown_delta' },
    }),
  },
  unread_member: {
    'a text block that begins with text': started(1, { text: 'PRE' }),
    'the input of a tool at its start': started(2, { input: { a: 1 } }),
    'an input of a tool that is a list': started(2, { input: [] }),
    'thinking of another form at the start of a block': started(0, { thinking: {} }),
    'a message that begins with content': begun({ content: [{ type: 'text', text: 'PRE' }] }),
  },
  changed_identity: {
    'an index for a second time': edited(startsBlock(1), { index: 0 }),
    'an index that is left out': edited(startsBlock(1), { index: 5 }),
    'a block within another': change(ofDelta('text_delta'), (event) => [event, textBlock(2)]),
    'text after the end of its block': putBefore(startsBlock(2), textDelta(1)),
    'a second message': [STREAM[0] as JsonObject, ...STREAM],
    'a stop reason while a block is open': change(ofDelta('text_delta'), (event) => [
      event,
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: {} },
    ]),
  },
  late_event: {
    'a delta without a block': putBefore(startsBlock(2), textDelta(2)),
    'a second signature': repeated(ofDelta('signature_delta')),
    'thinking after its signature': repeated(ofDelta('signature_delta'), {
      delta: { type: 'thinking_delta', thinking: '!' },
    }),
    'a block after the stop reason': putBefore(ofType('message_stop'), textBlock(5)),
  },
  invalid_tool_input: Object.fromEntries(
    ['{"path"', '{"path":1,"path":'].map((partial_json) => [
      `the input ${partial_json} of a tool`,
      editedIn('delta', ofDelta('input_json_delta'), { partial_json }),
    ]),
  ),
  changed_finish: {
    'another stop reason after the first': repeated(END, { delta: { stop_reason: 'refusal' } }),
    'a stop reason that is taken back': repeated(END, { delta: { stop_reason: null } }),
    'newer usage after the stop reason': repeated(END, { usage: { output_tokens: 1_000 } }),
    'usage that falls before the stop reason': putBefore(END, {
      type: 'message_delta',
      delta: {},
      usage: { output_tokens: 1_000 },
    }),
    'usage that falls': edited(END, { usage: { output_tokens: 0 } }),
  },
  invalid_form: {
    'a stream without message_start': STREAM.slice(1),
    'over 100 message_delta events': change(END, (event) =>
      Array.from({ length: 101 }, () => event),
    ),
    'over 1,000 members of usage before the stop reason': putBefore(END, {
      type: 'message_delta',
      delta: {},
      usage: Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`a${at}`, 1])),
    }),
    'a stop reason that is no text': edited(END, { delta: { stop_reason: 1 } }),
    'a message without usage': begun({ usage: null }),
  },
  unfinished: {
    'an end without a stop reason': change(END, () => []),
    'a stop reason that is null': edited(END, { delta: { stop_reason: null } }),
  },
  upstream_failure: {
    'an error event': edited(ofType('message_stop'), {
      type: 'error',
      error: { type: 'overloaded_error' },
    }),
  },
}
it.each(rowsByCode(REFUSED))('the reader refuses %s', (_, expected, events) => {
  expect(read(events).code).toBe(expected)
})

it('the reader refuses a ping that carries text', () => {
  expect(() => new MessagesReader().read({ event: 'ping', data: textDelta(1) })).toThrow(
    expect.objectContaining({ code: 'changed_type' }),
  )
})

it.each(
  Object.entries<readonly JsonObject[]>({
    'members that are left out at the start of blocks': STREAM.map((event) => {
      const { type, id, name } = (event.content_block ?? {}) as JsonObject
      if (type === undefined || type === 'web_search_tool_result') return event
      const kept: JsonObject =
        id === undefined ? { type } : { type, id: id ?? '', name: name ?? '' }
      return { ...event, content_block: kept }
    }),
    'a message without type and role': change(ofType('message_start'), (event) => {
      const { type: _, role: __, ...message } = event.message as JsonObject
      return [{ ...event, message }]
    }),
    'blocks that all end at the end': [
      ...STREAM.filter(({ type }) => !/_stop$|message_delta/.test(String(type))),
      ...STREAM.filter(({ type }) => type === 'content_block_stop'),
      ...STREAM.slice(-2),
    ],
    'an empty signature': repeated(ofDelta('signature_delta'), {
      delta: { type: 'signature_delta', signature: '' },
    }),
    'members of message_delta that SDKs do not read': change(END, (event) => [
      { ...event, note: 'x', delta: { ...(event.delta as JsonObject), content: [], id: 'y' } },
    ]),
    'message_delta events before the stop reason': change(END, (event): readonly JsonObject[] => [
      { type: 'message_delta', delta: {}, usage: { output_tokens: 2 } },
      { ...event, delta: { stop_reason: null, stop_sequence: null } },
      { ...event, usage: { output_tokens: null } },
    ]),
    'a message_delta that repeats the stop reason': change(END, (event) => [
      event,
      event,
      { ...event, usage: {} },
    ]),
    'a proof of the provider in the message': begun({ affidavit: 'FAKE' }),
    'proofs of the provider and unknown events anywhere': STREAM.flatMap(
      (event): readonly JsonObject[] => [
        { ...event, affidavit: { hash: 'x' } },
        { type: 'usage_update' },
      ],
    ),
  }),
)('the reader settles %s', (_, events) => {
  const reader = new MessagesReader()
  const { given, code } = readAll(reader, events)
  expect(code).toBeNull()
  expect(dataOf(given)).toEqual(STREAM.filter((event) => !isPing(event)))
  expect(reader.response()).toEqual(builtMessage(BLOCKS))
})

it('the reader lets the tokens of the input fall: their last number counts', () => {
  const reader = new MessagesReader()
  const usage = { input_tokens: 3, output_tokens: 20 }
  readAll(
    reader,
    change(ofType('message_delta'), (event) => [{ ...event, usage }]),
  )
  expect(reader.response()).toMatchObject({ usage })
})

it('the reader gives all members of the message_delta events in one, the newest of each', () => {
  const reader = new MessagesReader()
  const { given } = readAll(
    reader,
    change(ofType('message_delta'), (): readonly JsonObject[] => [
      {
        type: 'message_delta',
        delta: { stop_reason: null, container: { id: 'c' } },
        usage: { input_tokens: 7, output_tokens: 21, cache_read_input_tokens: null },
        context_management: { applied_edits: [] },
      },
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: { input_tokens: null, output_tokens: 22 },
      },
    ]),
  )
  const delta = { stop_reason: 'end_turn', stop_sequence: null, container: { id: 'c' } }
  const context_management = { applied_edits: [] }
  expect(dataOf(given).filter(ofType('message_delta'))).toEqual([
    {
      type: 'message_delta',
      delta,
      usage: { input_tokens: 7, output_tokens: 22, cache_read_input_tokens: null },
      context_management,
    },
  ])
  expect(reader.response()).toMatchObject({
    ...delta,
    context_management,
    usage: { input_tokens: 7, output_tokens: 22 },
  })
})

it('a cut stream has nothing of a message_delta that was held', () => {
  const reader = new MessagesReader()
  const at = STREAM.findIndex(ofType('message_delta'))
  const held = { type: 'message_delta', delta: {}, usage: { output_tokens: 1_000 } }
  expect(readAll(reader, [...STREAM.slice(0, at), held]).code).toBeNull()
  expect(JSON.stringify(reader.response())).not.toContain('1000')
})

const pieces = fc.array(fc.string({ unit: 'binary', maxLength: 5 }), { maxLength: 4 })
const block: fc.Arbitrary<BuiltBlock> = fc.oneof(
  pieces.map((texts): BuiltBlock => ({ kind: 'text', pieces: texts })),
  pieces.map((texts): BuiltBlock => ({ kind: 'thinking', pieces: texts, signature: 'c2ln' })),
  fc.dictionary(fc.string(), fc.string()).map((input): BuiltBlock => {
    const text = JSON.stringify(input)
    return { kind: 'tool', id: 'toolu_1', pieces: [text.slice(0, 3), text.slice(3)] }
  }),
)
const contents = fc
  .array(block, { maxLength: 4 })
  .map((blocks) =>
    blocks.map((built, at) => ('id' in built ? { ...built, id: `toolu_${at}` } : built)),
  )

it('any stream is given out as it came, and assembles to its message', () => {
  fc.assert(
    fc.property(contents, (blocks) => {
      const reader = new MessagesReader()
      const events = messagesStream(blocks)
      const { given, code } = readAll(reader, events)
      expect(code).toBeNull()
      expect(dataOf(given)).toEqual(events.filter((event) => !isPing(event)))
      expect(reader.response()).toEqual(builtMessage(blocks))
    }),
  )
})

it('any stream is refused or passes as it is, however it was altered', () => {
  const edits = anyAlterations('drop', 'double', 'swap', 'retype')
  let accepted = 0
  fc.assert(
    fc.property(contents, edits, (blocks, alterations) => {
      const events = alterations.reduce(alter, messagesStream(blocks))
      const reader = new MessagesReader()
      const { given, code } = readAll(reader, events)
      if (code !== null || !reader.isEnded) return
      accepted += 1
      const again = new MessagesReader()
      expect(readAll(again, dataOf(given)).given).toEqual(given)
      expect(again.response()).toEqual(reader.response())
      expect(joinedText(dataOf(given))).toBe(textOf(reader.response()))
    }),
    { numRuns: 600 },
  )
  expect(accepted).toBeGreaterThan(12)
})

/** What a reader of deltas shows, whichever block they are of. */
function joinedText(events: readonly JsonObject[]): string {
  return events.map(({ delta }) => String((delta as JsonObject | undefined)?.text ?? '')).join('')
}

/** What a reader of the message shows. */
function textOf({ content }: JsonObject): string {
  return (content as readonly JsonObject[]).map(({ text = '' }) => String(text)).join('')
}
