import { sha256 } from '@noble/hashes/sha2.js'
import { encodeHex, encodeUtf8 } from '../bytes.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import type { JsonObject } from '../json/value.ts'
import { type DialectEvent, hashedLine } from './dialect.ts'
import type { DialectName } from './dialect-names.ts'
import { type EventDialect, eventDialectOf } from './dialects.ts'
import type { KeptStream } from './kept-stream.ts'

/**
 * Returns the events in which a gateway repeats an answer for its `Idempotency-Key`. The original
 * stream may have had other events, so no enclave signed the hash of these. Throws FormatError, and
 * TypeError for an answer that has not ended.
 */
export function repeatedEvents(
  dialect: Pick<EventDialect, 'eventsOf' | 'openStream'>,
  answer: JsonObject,
): readonly DialectEvent[] {
  const reader = dialect.openStream()
  const given = dialect.eventsOf(answer).flatMap((data) => reader.read({ event: '', data }))
  if (!reader.isEnded || given.length === 0)
    throw new TypeError('expected an answer that has ended')
  return given
}

/** True if a gateway repeats the answer in these events. Throws as repeatedEvents. */
export function isRepetition(name: DialectName, { response, streamHash }: KeptStream): boolean {
  const dialect = eventDialectOf(name)
  if (dialect === null) return false
  const lines = repeatedEvents(dialect, response).map(({ event, data }) =>
    hashedLine(event, canonicalizeJson(data)),
  )
  return streamHash === encodeHex(sha256(encodeUtf8(lines.join(''))))
}
