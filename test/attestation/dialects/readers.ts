import {
  type DialectEvent,
  PROOF_MEMBER,
  type StreamReader,
} from '#attestation/dialects/dialect.ts'
import type { EventDialect } from '#attestation/dialects/dialects.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

/** Reads all events; gives what was given out, and why it was refused, if it was. */
export function readAll(
  reader: StreamReader,
  events: readonly JsonObject[],
): { readonly given: readonly DialectEvent[]; readonly code: string | null } {
  const given: DialectEvent[] = []
  try {
    for (const data of events) given.push(...reader.read({ event: String(data.type ?? ''), data }))
    return { given, code: null }
  } catch (error) {
    return { given, code: (error as { code?: string }).code ?? String(error) }
  }
}

/** The data of the events. */
export function dataOf(events: readonly DialectEvent[]): readonly JsonObject[] {
  return events.map(({ data }) => data)
}

/**
 * What four kinds of readers make of a Responses stream's texts, by item: those of deltas, of
 * events that end a text, of items at their end, and of the final object.
 */
export function responsesReadings(events: readonly DialectEvent[]): readonly string[] {
  const deltas = new Map<string, string>()
  const ends = new Map<string, string>()
  const items = new Map<string, string>()
  let finals = new Map<string, string>()
  for (const { event, data } of events) {
    const place = [data.output_index, data.content_index ?? data.summary_index ?? ''].join()
    if (event.endsWith('.delta')) deltas.set(place, (deltas.get(place) ?? '') + String(data.delta))
    else if (/(text|refusal|arguments|input|code)\.done$/.test(event))
      ends.set(
        place,
        String(data.text ?? data.refusal ?? data.arguments ?? data.input ?? data.code),
      )
    else if (event === 'response.output_item.done')
      addItem(items, Number(data.output_index), data.item as JsonObject)
    else if (data.response !== undefined && /\.(completed|incomplete|failed)$/.test(event)) {
      finals = new Map()
      const { output } = data.response as { readonly output: readonly JsonObject[] }
      for (const [index, item] of output.entries()) addItem(finals, index, item)
    }
  }
  // An empty text need not be a delta.
  return [deltas, ends, items, finals].map((texts) =>
    canonicalizeJson([...texts].filter(([, text]) => text !== '').sort()),
  )
}

function addItem(texts: Map<string, string>, index: number, item: JsonObject): void {
  const lists = [item.content, item.summary].flatMap((list) => (Array.isArray(list) ? [list] : []))
  for (const list of lists)
    for (const [at, part] of (list as readonly JsonObject[]).entries())
      texts.set([index, at].join(), String(part.text ?? part.refusal ?? ''))
  const whole = item.arguments ?? (item.type === 'custom_tool_call' ? item.input : undefined)
  if (whole !== undefined) texts.set([index, ''].join(), String(whole as Json))
}

/** Adds the proof of a stream to its last event. */
export function withProof(
  { proofIn }: EventDialect,
  { event, data }: DialectEvent,
  proof: JsonObject,
): DialectEvent {
  if (proofIn === null) return { event, data: { ...data, [PROOF_MEMBER]: proof } }
  const owner = data[proofIn] as JsonObject
  return { event, data: { ...data, [proofIn]: { ...owner, [PROOF_MEMBER]: proof } } }
}
