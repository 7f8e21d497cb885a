import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import type { EventDialect } from '#attestation/dialects/dialects.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'

/** `events` is the text of all events but the last. `last` is the data of the last event. */
type ReplayedAnswer = { readonly events: string; readonly last: string }

/**
 * Returns an earlier answer in the form of an enclave's stream. The original stream may have had
 * other events.
 */
export function replayAnswer(
  dialect: Pick<EventDialect, 'eventsOf' | 'openStream'>,
  answer: JsonObject,
): ReplayedAnswer {
  const reader = dialect.openStream()
  const given = dialect.eventsOf(answer).flatMap((data) => reader.read({ event: '', data }))
  const last = given.at(-1)
  if (!reader.isEnded || last === undefined)
    throw new TypeError('expected an answer that has ended')
  return { events: given.slice(0, -1).map(eventText).join(''), last: canonicalizeJson(last.data) }
}

function eventText({ event, data }: DialectEvent): string {
  return `event: ${event}\ndata: ${canonicalizeJson(data)}\n\n`
}
