import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import type { EventDialect } from '#attestation/dialects/dialects.ts'
import { repeatedEvents } from '#attestation/dialects/repeated-stream.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'

/** `events` is the text of all events but the last. `last` is the data of the last event. */
type ReplayedAnswer = { readonly events: string; readonly last: string }

/** Returns an earlier answer in the form of an enclave's stream. Throws as repeatedEvents. */
export function replayAnswer(
  dialect: Pick<EventDialect, 'eventsOf' | 'openStream'>,
  answer: JsonObject,
): ReplayedAnswer {
  const events = repeatedEvents(dialect, answer)
  const last = canonicalizeJson(events.at(-1)?.data ?? null)
  return { events: events.slice(0, -1).map(eventText).join(''), last }
}

function eventText({ event, data }: DialectEvent): string {
  return `event: ${event}\ndata: ${canonicalizeJson(data)}\n\n`
}
