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
    'the input of a tool at its start': started(2, { input: { a: 1 } }),
  },
  changed_identity: {
    'a second message': change(ofType('message_start'), (event) => [
      event,
      { ...event, message: { ...(event.message as JsonObject), id: 'msg_2' } },
    ]),
    'a message that begins with content, and goes on': begun({
      content: [{ type: 'text', text: 'PRE' }],
    }),
    'an index for a second time': edited(startsBlock(1), { index: 0 }),
  },
  late_event: {
    'text after the end of its block': putBefore(startsBlock(2), textDelta(1)),
    'a block within another': change(ofDelta('text_delta'), (event) => [event, textBlock(7)]),
    'another signature': repeated(ofDelta('signature_delta'), {
      delta: { type: 'signature_delta', signature: 'b3RoZXI=' },
    }),
  },
  invalid_tool_input: Object.fromEntries(
    ['{"path"', '{"path":1,"path":'].map((partial_json) => [
      `the input ${partial_json} of a tool`,
      editedIn('delta', ofDelta('input_json_delta'), { partial_json }),
    ]),
  ),
  changed_finish: {
    'another stop reason after the first': repeated(END, { delta: { stop_reason: 'refusal' } }),
    'usage that falls': edited(END, { usage: { output_tokens: 0 } }),
  },
  invalid_form: {
    'thinking of another form at the start of a block': started(0, { thinking: {} }),
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

/** The events with this start of the tool's block, without its deltas. */
const startedWhole = (index: number, members: JsonObject, type: string) =>
  started(index, members).filter(({ delta }) => (delta as JsonObject | undefined)?.type !== type)

/** Expects what a settled stream is: one message, also for a second reader. */
function expectSettled(events: readonly JsonObject[], message: unknown) {
  const reader = new MessagesReader()
  const { given, code } = readAll(reader, events)
  expect(code).toBeNull()
  expect(reader.response()).toEqual(message)
  const second = new MessagesReader(undefined, false)
  for (const event of given) expect(second.read(event)).toEqual([event])
  expect(second.response()).toEqual(message)
  return dataOf(given)
}

it.each(
  Object.entries<readonly JsonObject[]>({
    // https://github.com/vercel/ai/issues/12668
    'the input of a tool at the start of its block': startedWhole(
      2,
      { input: { path: 'a.txt' } },
      'input_json_delta',
    ),
    'the input of a tool at the start and in deltas': started(2, { input: { path: 'a.txt' } }),
    'an empty input of a tool that is a list': started(2, { input: [] }),
    'a text at the start of its block': startedWhole(1, { text: 'Hello' }, 'text_delta'),
    'citations at the start of a block': startedWhole(
      1,
      { citations: [{ type: 'char_location' }] },
      'citations_delta',
    ),
    'thinking at the start of its block': startedWhole(0, { thinking: 'I look' }, 'thinking_delta'),
    'a signature at the start of its block': startedWhole(
      0,
      { signature: 'c2ln' },
      'signature_delta',
    ),
    // https://github.com/vercel/ai/issues/18332
    'a message_start that is repeated': [STREAM[0] as JsonObject, ...STREAM],
    'a start of a block that is repeated': repeated(startsBlock(1)),
    'an end of a block that is repeated': repeated(
      ({ type, index }) => type === 'content_block_stop' && index === 1,
    ),
    'a start of a block that is left out': STREAM.filter((event) => !startsBlock(0)(event)),
    'indexes with a gap': edited(startsBlock(4), { index: 9 }).map((event, at, all) =>
      event.type === 'content_block_stop' && all[at - 1]?.index === 9
        ? { ...event, index: 9 }
        : event,
    ),
    'a signature that is repeated': repeated(ofDelta('signature_delta')),
    'a signature before the thinking': [
      ...STREAM.slice(0, 3),
      ...STREAM.filter(ofDelta('signature_delta')),
      ...STREAM.slice(3).filter((event) => !ofDelta('signature_delta')(event)),
    ],
    // https://github.com/vercel/ai/issues/11262
    'blanks before the input of a tool': putBefore(ofDelta('input_json_delta'), {
      type: 'content_block_delta',
      index: 2,
      delta: { type: 'input_json_delta', partial_json: ' ' },
    }),
    'an input of a tool that is blank': putBefore(
      ({ type, index }) => type === 'content_block_stop' && index === 3,
      {
        type: 'content_block_delta',
        index: 3,
        delta: { type: 'input_json_delta', partial_json: '\n' },
      },
    ),
    'a stop reason that is taken back': repeated(END, { delta: { stop_reason: null } }),
    'a message_delta without a delta': change(END, ({ delta, ...event }) => [
      { ...event, delta: delta ?? {} },
      event,
    ]),
    'a stop reason before a block': [
      ...STREAM.filter(({ type }) => !/^message_(delta|stop)$/.test(String(type))),
    ]
      .toSpliced(2, 0, ...STREAM.filter(END))
      .concat(STREAM.slice(-1)),
  }),
)('the reader settles, so that all readers agree, %s', (_, events) => {
  const given = expectSettled(events, builtMessage(BLOCKS))
  expect(given.filter(startsBlock(2))).toEqual(STREAM.filter(startsBlock(2)))
  expect(given.filter(ofDelta('signature_delta'))).toHaveLength(1)
})

// https://github.com/anthropics/anthropic-sdk-python/issues/1940
it('the reader gives the newest usage, though it comes after the stop reason', () => {
  const usage = { output_tokens: 1_000 }
  const given = expectSettled(repeated(END, { delta: {}, usage }), expect.objectContaining({}))
  expect(given.filter(END)).toMatchObject([{ delta: { stop_reason: 'end_turn' }, usage }])
})

it.each(['max_tokens', 'model_context_window_exceeded', 'refusal'])(
  'the reader gives the input of a tool that %s cut, as its text',
  (stop_reason) => {
    const whole = messagesStream(BLOCKS.slice(0, 3))
    const cut = whole.flatMap((event) => {
      const { partial_json } = (event.delta ?? {}) as JsonObject
      if (partial_json === '"a.txt"}') return []
      return event.type === 'message_delta' ? [{ ...event, delta: { stop_reason } }] : [event]
    })
    const last = expect.objectContaining({ type: 'tool_use', input: '{"path":' })
    const content = [...(builtMessage(BLOCKS.slice(0, 2)).content as readonly object[]), last]
    expectSettled(cut, expect.objectContaining({ content, stop_reason }))
  },
)

// https://github.com/earendil-works/pi/issues/8943
it('the reader keeps the digits of a number that a double cannot hold', () => {
  const events = change(ofDelta('input_json_delta'), (event) => [
    {
      ...event,
      delta: { type: 'input_json_delta', partial_json: '{"id":9007199254740993,"path":' },
    },
  ])
  expectSettled(
    events,
    expect.objectContaining({
      content: expect.arrayContaining([
        expect.objectContaining({ input: '{"id":9007199254740993,"path":"a.txt"}' }),
      ]),
    }),
  )
  expect(read(started(2, { input: { id: 2 ** 60 } })).code).toBe('invalid_tool_input')
})

it('the reader gives a block that says which model went on', () => {
  const fallback = { type: 'fallback', from: { model: 'm' }, to: { model: 'm2' } }
  const message = { ...builtMessage(BLOCKS), content: [fallback] }
  const [start] = STREAM as readonly [JsonObject]
  const begin = { type: 'content_block_start', index: 0, content_block: fallback }
  const stop = { type: 'content_block_stop', index: 0 }
  expectSettled([start, begin, stop, ...STREAM.slice(-2)], message)
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

/** The reader gives what it read before it refused: the message, which is sealed, covers it. */
it.each(
  Object.entries<readonly JsonObject[]>({
    'an input that is a list': [
      { ...textBlock(0), content_block: { type: 'tool_use', id: 't', name: 'n', input: '[1]' } },
      { type: 'content_block_stop', index: 0 },
    ],
    'a second block of the same id': [0, 1].map((index) => ({
      ...textBlock(index),
      content_block: { type: 'tool_use', id: 't', name: 'n', input: { a: 1 } },
    })),
    'a call without an id, after a signature': [
      { ...textBlock(0), content_block: { type: 'thinking', thinking: 'a', signature: 's' } },
      { ...textBlock(1), content_block: { type: 'tool_use', id: '', name: 'n' } },
    ],
    'a text that is a number': [{ ...textDelta(0), delta: { type: 'text_delta', text: 1 } }],
  }),
)('the message covers the events that were given out before %s', (_, events) => {
  const [reader, second] = [new MessagesReader(), new MessagesReader(undefined, false)]
  const begin = STREAM[0] as JsonObject
  let last: string | null = null
  for (const data of [begin, ...events]) {
    last = readAll(reader, [data]).code
    for (const event of reader.given) expect(second.read(event)).toEqual([event])
  }
  expect(last).not.toBeNull()
  expect(reader.response()).toEqual(second.response())
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
