import { describe, expect, it } from 'vitest'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { StreamOutput } from '#enclave/stream/answer-stream.ts'
import { CutCharacters } from '#enclave/stream/cut-characters.ts'
import { EventStream } from '#enclave/stream/event-stream.ts'
import { messagesStream } from '../../attestation/dialects/messages-streams.ts'
import { responsesStream } from '../../attestation/dialects/responses-streams.ts'
import type { EventName } from '../support/dialect-stage.ts'

const memory = {
  admit: () => undefined,
  admitInput: () => undefined,
  checkAssembly: () => undefined,
  wait: async () => undefined,
}

/** The events that are given out for these events, and the answer. */
function give(name: EventName, events: readonly JsonObject[]) {
  const output = new StreamOutput()
  const reader = EVENT_DIALECTS[name].openStream()
  const fallback = { id: 'x', created: 1, model: 'm', provider: 'p' }
  const stream = new EventStream(reader, { output, memory } as never, fallback)
  for (const data of events) stream.read({ event: String(data.type), data: JSON.stringify(data) })
  const { text, last } = output.take()
  const given = new EventParser().push(Buffer.from(text)).map(({ data }) => JSON.parse(data))
  return { given: joined([...given, JSON.parse(last ?? 'null')]), answer: stream.response() }
}

/** Joins deltas of one text that follow each other, and numbers the events again. */
function joined(events: readonly JsonObject[]): readonly JsonObject[] {
  const kept: JsonObject[] = []
  for (const { sequence_number: _, ...data } of events) {
    const before = kept.at(-1)
    const [one, next] = [textOf(before), textOf(data)]
    if (before === undefined || one === null || next === null) kept.push(data)
    else if (JSON.stringify(withText(before, '')) !== JSON.stringify(withText(data, '')))
      kept.push(data)
    else kept[kept.length - 1] = withText(data, one + next)
  }
  return kept
}

const NAMES = ['text', 'thinking', 'partial_json']

function textOf(data: JsonObject | undefined): string | null {
  const delta = data?.delta ?? null
  if (typeof delta === 'string') return delta
  const found = Object.entries(delta ?? {}).find(([name]) => NAMES.includes(name))
  return found === undefined ? null : String(found[1])
}

function withText(data: JsonObject, text: string): JsonObject {
  const { delta } = data
  if (typeof delta === 'string') return { ...data, delta: text }
  const entries = Object.entries(delta ?? {})
  const changed = entries.map(([name, value]) => [name, NAMES.includes(name) ? text : value])
  return { ...data, delta: Object.fromEntries(changed) }
}

/** A stream with a text of each kind. `split` makes the deltas of a text. */
function streamOf(name: EventName, text: string, split: (text: string) => readonly string[]) {
  const input = split(JSON.stringify({ text: text.toWellFormed() }))
  return name === 'responses'
    ? responsesStream([
        { kind: 'reasoning', id: 'rs_1', pieces: split(text) },
        { kind: 'message', id: 'msg_1', pieces: split(text) },
        { kind: 'call', id: 'fc_1', pieces: input },
      ])
    : messagesStream([
        { kind: 'thinking', pieces: split(text), signature: 'c2ln' },
        { kind: 'text', pieces: split(text) },
        { kind: 'tool', id: 'toolu_1', pieces: input },
      ])
}

/** Lone halves too, at each place. */
const TEXTS = [
  'a😀b',
  '😀😁',
  '\ud83d',
  '\ude00',
  'a\ud83d\ud83d\ude00\ude00\ud83d',
  '\ud83d x \ud83d',
  'é\u2028😀',
]

describe.each(['responses', 'messages'] as const)('cut characters of %s', (name) => {
  it.each(TEXTS)(
    'a stream with the text %j gives the same, however its deltas cut the text',
    (text) => {
      const whole = give(
        name,
        streamOf(name, text, (each) => [each]),
      )
      expect(JSON.stringify(whole.answer)).toContain(
        JSON.stringify(text.toWellFormed()).slice(1, -1),
      )
      const everyUnit = (each: string) => each.split('')
      expect(give(name, streamOf(name, text, everyUnit))).toEqual(whole)
      // The JSON of the call's input is at most 30 units longer than the text.
      for (let at = 0; at <= text.length + 30; at++) {
        const split = (each: string) => [each.slice(0, at), each.slice(at)]
        expect(give(name, streamOf(name, text, split))).toEqual(whole)
      }
    },
  )
})

describe('the halves of a character', () => {
  /** Calls whose deltas arrive in turn. `place` is what the deltas state of their items. */
  function callsInTurn(count: number, place: (at: number) => JsonObject) {
    const input = '{"text":"😀"}'
    const items = Array.from({ length: count }, (_, at) => ({
      kind: 'call' as const,
      id: `fc_${at}`,
      pieces: [input],
    }))
    const [created = {}, begun = {}, ...events] = responsesStream(items)
    const end = events.at(-1) as JsonObject
    const indexes = items.map((_, at) => at)
    const type = 'response.function_call_arguments.delta'
    return [
      created,
      begun,
      ...events.filter((event) => event.type === 'response.output_item.added'),
      ...input.split('').flatMap((delta) => indexes.map((at) => ({ type, ...place(at), delta }))),
      ...events.filter((event) => String(event.type).endsWith('.done')),
      end,
    ]
  }

  const places: Readonly<Record<string, (at: number) => JsonObject>> = {
    'an index and an id': (at) => ({ output_index: at, item_id: `fc_${at}` }),
    'an index': (at) => ({ output_index: at }),
    'an id': (at) => ({ item_id: `fc_${at}` }),
  }
  it.each(Object.entries(places))(
    'halves are joined in calls that run at once with %s',
    (_, place) => {
      const { answer } = give('responses', callsInTurn(3, place))
      expect(JSON.stringify(answer).match(/😀/g)).toHaveLength(3)
    },
  )

  it('halves are replaced if they wait in too many calls at once', () => {
    const stream = () => give('responses', callsInTurn(20, places['an index'] as never))
    expect(stream).toThrow('expected a text at its end as it streamed')
  })

  it('a half in an event with a long place is not kept', () => {
    const cut = new CutCharacters()
    const place = { type: 'response.x.delta', item_id: 'i'.repeat(5_000) }
    expect(cut.join({ ...place, delta: 'a\ud83d' })).toEqual([{ ...place, delta: 'a\ud83d' }])
    expect(cut.join({ type: 'response.completed' })).toHaveLength(1)
  })
})
