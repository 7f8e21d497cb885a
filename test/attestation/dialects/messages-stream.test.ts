import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MessagesReader } from '#attestation/dialects/messages/read-stream.ts'
import type { JsonObject } from '#attestation/json/value.ts'
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

/** Puts the events in the place of the first that `matches`. */
function change(
  matches: (event: JsonObject) => boolean,
  edit: (event: JsonObject) => readonly JsonObject[],
): readonly JsonObject[] {
  const at = STREAM.findIndex(matches)
  return [...STREAM.slice(0, at), ...edit(STREAM[at] as JsonObject), ...STREAM.slice(at + 1)]
}

const ofType = (type: string) => (event: JsonObject) => event.type === type
const ofDelta = (type: string) => (event: JsonObject) =>
  (event.delta as JsonObject | undefined)?.type === type
const startsBlock = (index: number) => (event: JsonObject) =>
  event.type === 'content_block_start' && event.index === index

describe('a stream of Messages', () => {
  it('the reader gives out every event but pings as it came', () => {
    const { given, code } = read(STREAM)
    expect(code).toBeNull()
    expect(dataOf(given)).toEqual(STREAM.filter((event) => !isPing(event)))
  })

  it('assembles the message, and gives nothing after its end', () => {
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

  const refused: Readonly<Record<string, readonly [string, readonly JsonObject[]]>> = {
    'thinking in a text block': [
      'changed_type',
      change(ofDelta('text_delta'), (event) => [
        { ...event, delta: { type: 'thinking_delta', thinking: 'secret' } },
      ]),
    ],
    'a delta of a type unknown here': [
      'changed_type',
      change(ofDelta('text_delta'), (event) => [{ ...event, delta: { type: 'markdown_delta' } }]),
    ],
    'a text block that begins with text': [
      'unread_member',
      change(startsBlock(1), (event) => [
        { ...event, content_block: { type: 'text', text: 'PRE' } },
      ]),
    ],
    'the input of a tool at its start': [
      'unread_member',
      change(startsBlock(2), (event) => [
        { ...event, content_block: { ...(event.content_block as JsonObject), input: { a: 1 } } },
      ]),
    ],
    'a message that begins with content': [
      'unread_member',
      change(ofType('message_start'), (event) => [
        {
          ...event,
          message: { ...(event.message as JsonObject), content: [{ type: 'text', text: 'PRE' }] },
        },
      ]),
    ],
    'an index for a second time': [
      'changed_identity',
      change(startsBlock(1), (event) => [{ ...event, index: 0 }]),
    ],
    'an index that is left out': [
      'changed_identity',
      change(startsBlock(1), (event) => [{ ...event, index: 5 }]),
    ],
    'a block within another': [
      'changed_identity',
      change(ofDelta('text_delta'), (event) => [
        event,
        { type: 'content_block_start', index: 2, content_block: { type: 'text', text: '' } },
      ]),
    ],
    'text after the end of its block': [
      'changed_identity',
      change(startsBlock(2), (event) => [
        { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: '!' } },
        event,
      ]),
    ],
    'a delta without a block': [
      'late_event',
      change(startsBlock(2), (event) => [
        { type: 'content_block_delta', index: 2, delta: { type: 'text_delta', text: '!' } },
        event,
      ]),
    ],
    'a second signature': [
      'late_event',
      change(ofDelta('signature_delta'), (event) => [event, event]),
    ],
    'thinking after its signature': [
      'late_event',
      change(ofDelta('signature_delta'), (event) => [
        event,
        { ...event, delta: { type: 'thinking_delta', thinking: '!' } },
      ]),
    ],
    'an input of a tool that is no JSON': [
      'invalid_tool_input',
      change(ofDelta('input_json_delta'), (event) => [
        { ...event, delta: { type: 'input_json_delta', partial_json: '{"path"' } },
      ]),
    ],
    'an input of a tool with a member twice': [
      'invalid_tool_input',
      change(ofDelta('input_json_delta'), (event) => [
        { ...event, delta: { type: 'input_json_delta', partial_json: '{"path":1,"path":' } },
      ]),
    ],
    'a second message': ['changed_identity', [STREAM[0] as JsonObject, ...STREAM]],
    'a stream without message_start': ['invalid_form', STREAM.slice(1)],
    'another stop reason after the first': [
      'changed_finish',
      change(ofType('message_delta'), (event) => [
        event,
        { ...event, delta: { stop_reason: 'refusal' } },
      ]),
    ],
    'a stop reason that is taken back': [
      'changed_finish',
      change(ofType('message_delta'), (event) => [
        event,
        { ...event, delta: { stop_reason: null } },
      ]),
    ],
    'newer usage after the stop reason': [
      'changed_finish',
      change(ofType('message_delta'), (event) => [
        event,
        { ...event, usage: { output_tokens: 1_000 } },
      ]),
    ],
    'usage that falls before the stop reason': [
      'changed_finish',
      change(ofType('message_delta'), (event) => [
        { ...event, delta: {}, usage: { output_tokens: 1_000 } },
        event,
      ]),
    ],
    'over 100 message_delta events': [
      'invalid_form',
      change(ofType('message_delta'), (event) => Array.from({ length: 101 }, () => event)),
    ],
    'over 1,000 members of usage before the stop reason': [
      'invalid_form',
      change(ofType('message_delta'), (event) => [
        {
          type: 'message_delta',
          delta: {},
          usage: Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`a${at}`, 1])),
        },
        event,
      ]),
    ],
    'an end without a stop reason': [
      'unfinished',
      STREAM.filter((event) => !ofType('message_delta')(event)),
    ],
    'a stop reason that is null': [
      'unfinished',
      change(ofType('message_delta'), (event) => [{ ...event, delta: { stop_reason: null } }]),
    ],
    'a stop reason that is no text': [
      'invalid_form',
      change(ofType('message_delta'), (event) => [{ ...event, delta: { stop_reason: 1 } }]),
    ],
    'a stop reason while a block is open': [
      'changed_identity',
      change(ofDelta('text_delta'), (event) => [
        event,
        { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: {} },
      ]),
    ],
    'a block after the stop reason': [
      'late_event',
      change(ofType('message_stop'), (event) => [
        { type: 'content_block_start', index: 5, content_block: { type: 'text', text: '' } },
        event,
      ]),
    ],
    'usage that falls': [
      'changed_finish',
      change(ofType('message_delta'), (event) => [{ ...event, usage: { output_tokens: 0 } }]),
    ],
    'thinking of another form at the start of a block': [
      'unread_member',
      change(startsBlock(0), (event) => [
        { ...event, content_block: { type: 'thinking', thinking: {}, signature: '' } },
      ]),
    ],
    'an input of a tool that is a list': [
      'unread_member',
      change(startsBlock(2), (event) => [
        { ...event, content_block: { ...(event.content_block as JsonObject), input: [] } },
      ]),
    ],
    'two tool calls with one id': [
      'changed_identity',
      JSON.parse(JSON.stringify(STREAM).replaceAll('toolu_2', 'toolu_1')),
    ],
    'a block that names another model': [
      'changed_identity',
      change(startsBlock(1), (event) => [
        { ...event, content_block: { type: 'fallback', to: { model: 'n' } } },
      ]),
    ],
    'a message without usage': [
      'invalid_form',
      change(ofType('message_start'), (event) => [
        { ...event, message: { ...(event.message as JsonObject), usage: null } },
      ]),
    ],
    'an error event': [
      'upstream_failure',
      change(ofType('message_stop'), () => [
        { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
      ]),
    ],
  }
  for (const [what, [expected, events]] of Object.entries(refused))
    it(`the reader refuses ${what}`, () => {
      expect(read(events).code).toBe(expected)
    })

  it('the reader refuses a ping that carries text', () => {
    const data = {
      type: 'content_block_delta',
      index: 1,
      delta: { type: 'text_delta', text: '!' },
    }
    expect(() => new MessagesReader().read({ event: 'ping', data })).toThrow(
      expect.objectContaining({ code: 'changed_type' }),
    )
  })

  const settled: Readonly<Record<string, readonly JsonObject[]>> = {
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
    'an empty signature': STREAM.flatMap((event) =>
      ofDelta('signature_delta')(event)
        ? [event, { ...event, delta: { type: 'signature_delta', signature: '' } }]
        : [event],
    ),
    'members of message_delta that SDKs do not read': change(ofType('message_delta'), (event) => [
      { ...event, note: 'x', delta: { ...(event.delta as JsonObject), content: [], id: 'y' } },
    ]),
    'message_delta events before the stop reason': change(
      ofType('message_delta'),
      (event): readonly JsonObject[] => [
        { type: 'message_delta', delta: {}, usage: { output_tokens: 2 } },
        { ...event, delta: { stop_reason: null, stop_sequence: null } },
        { ...event, usage: { output_tokens: null } },
      ],
    ),
    'a message_delta that repeats the stop reason': change(ofType('message_delta'), (event) => [
      event,
      event,
      { ...event, usage: {} },
    ]),
    'proofs of the provider anywhere': change(ofType('message_start'), (event) => [
      { ...event, message: { ...(event.message as JsonObject), affidavit: 'FAKE' } },
    ]),
  }
  for (const [what, events] of Object.entries(settled))
    it(`the reader settles ${what}`, () => {
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

  it('the reader leaves out a proof of the provider, and unknown events', () => {
    const { given } = read(
      STREAM.flatMap((event): readonly JsonObject[] => [
        { ...event, affidavit: { hash: 'x' } },
        { type: 'usage_update' },
      ]),
    )
    expect(dataOf(given)).toEqual(STREAM.filter((event) => !isPing(event)))
  })
})

describe('any stream of Messages', () => {
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
    const edits = fc.array(
      fc.tuple(fc.constantFrom('drop', 'double', 'swap', 'retype'), fc.nat(), fc.nat()),
      { minLength: 1, maxLength: 3 },
    )
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
      { numRuns: 1_000 },
    )
    expect(accepted).toBeGreaterThan(20)
  })

  /** What a reader of deltas shows, whichever block they are of. */
  function joinedText(events: readonly JsonObject[]): string {
    return events.map(({ delta }) => String((delta as JsonObject | undefined)?.text ?? '')).join('')
  }

  /** What a reader of the message shows. */
  function textOf({ content }: JsonObject): string {
    return (content as readonly JsonObject[]).map(({ text = '' }) => String(text)).join('')
  }

  function alter(
    events: readonly JsonObject[],
    [kind, first, second]: readonly [string, number, number],
  ): readonly JsonObject[] {
    const at = first % Math.max(1, events.length)
    const other = events[second % Math.max(1, events.length)]
    const event = events[at]
    if (event === undefined || other === undefined) return events
    const replaced = (by: readonly JsonObject[]) => [
      ...events.slice(0, at),
      ...by,
      ...events.slice(at + 1),
    ]
    if (kind === 'drop') return replaced([])
    if (kind === 'double') return replaced([event, event])
    if (kind === 'swap') return replaced([other])
    return replaced([{ ...event, type: other.type ?? '' }])
  }
})
