import { sha256 } from '@noble/hashes/sha2.js'
import { encodeHex, encodeUtf8 } from '../bytes.ts'
import { hasExactMembers, type Json, type JsonObject } from '../json/value.ts'
import { canonicalEvent, type DialectEvent, isSame, refuse, withoutProof } from './dialect.ts'
import { type EventDialect, proofOfEvent } from './dialects.ts'

/** The result of reading a stream that a caller kept. */
export type KeptStream = {
  /** The answer, without its proof member. */
  readonly response: JsonObject
  /** Hex. A genuine receipt has this value as `stream_hash`. */
  readonly streamHash: string
  /** Attacker-controlled. */
  readonly proof: Json
}

/**
 * Reads all events of a stream in the order of their arrival. They are attacker-controlled. Accepts
 * only a whole stream that every reader assembles to the same answer, as an enclave sends it. Skips
 * bare pings and keep-alives, which are not hashed. Throws FormatError as StreamReader.read does,
 * `unsettled_event` for an event that an enclave would leave out or write differently, `cut_stream`
 * if the last event is missing, `late_event` for an event after the last, `missing_proof` if the
 * last event has no proof. Does NOT check the proof.
 */
export function readKeptStream(dialect: EventDialect, events: readonly DialectEvent[]): KeptStream {
  const reader = dialect.openStream()
  const hash = sha256.create()
  let last: DialectEvent | null = null
  for (const kept of events) {
    if (isBare(kept)) continue
    if (last !== null) throw refuse('late_event', 'expected nothing after the last event')
    const settled = withoutProofs(dialect, kept)
    const [given, ...others] = reader.read(settled)
    if (
      given === undefined ||
      others.length > 0 ||
      given.event !== kept.event ||
      !isSame(given.data, settled.data)
    )
      throw refuse('unsettled_event', 'expected each event as an enclave gives it out')
    hash.update(encodeUtf8(canonicalEvent(given)))
    if (reader.isEnded) last = kept
    else if (proofOfEvent(dialect, kept) !== undefined)
      throw refuse('unsettled_event', 'expected a proof on the last event alone')
  }
  if (last === null) throw refuse('cut_stream', 'expected the last event of the stream')
  const proof = proofOfEvent(dialect, last)
  if (proof === undefined)
    throw refuse('missing_proof', 'expected the last event to carry the proof')
  return { response: reader.response(), streamHash: encodeHex(hash.digest()), proof }
}

/** True if an event only shows that the stream is alive. */
function isBare({ event, data }: DialectEvent): boolean {
  const { type } = data
  return (
    (type === 'ping' || type === 'keepalive') &&
    (event === '' || event === type) &&
    hasExactMembers(data, ['type'])
  )
}

/** The event as it is hashed: without the proof that an enclave adds. */
function withoutProofs(dialect: EventDialect, { event, data }: DialectEvent): DialectEvent {
  const { proofIn } = dialect
  if (proofIn === null) return { event, data: withoutProof(data) }
  const owner = data[proofIn]
  if (proofOfEvent(dialect, { event, data }) === undefined) return { event, data }
  return { event, data: { ...data, [proofIn]: withoutProof(owner as JsonObject) } }
}
