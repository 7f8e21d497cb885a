import { sha256 } from '@noble/hashes/sha2.js'
import { encodeHex, encodeUtf8 } from '../bytes.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { hasExactMembers, type Json, type JsonObject } from '../json/value.ts'
import { type DialectEvent, hashedLine, isSame, refuse, withoutProof } from './dialect.ts'
import type { DialectName } from './dialect-names.ts'
import { type EventDialect, eventDialectOf, proofOfEvent } from './dialects.ts'
import type { OnToolInput } from './tool-input.ts'

export type KeptStream = {
  /** The answer, without its proof member. */
  readonly response: JsonObject
  /** Hex. A genuine receipt has this value as `stream_hash`. */
  readonly streamHash: string
  /** Attacker-controlled. */
  readonly proof: Json
}

type KeptStreamReader = {
  /**
   * Reads the next event. Returns `bare` for a ping or a keep-alive (not hashed), `last` for the
   * event that ends the stream, otherwise `shown`. Throws as readKeptStream does.
   */
  add(event: DialectEvent): 'bare' | 'shown' | 'last'
  /** Throws as readKeptStream does. */
  end(): KeptStream
}

/**
 * Reads all events of a stream in the order of their arrival. They are attacker-controlled. Accepts
 * only a whole stream in the form of an enclave: every reader assembles it to the same answer.
 * Skips bare pings and keep-alives, which are not hashed. Throws FormatError as StreamReader.read
 * does, `unsettled_event` for an event that an enclave would leave out or write differently,
 * `cut_stream` if the last event is missing, `late_event` for an event after the last,
 * `missing_proof` if the last event has no proof, `invalid_stream` for a dialect whose streams have
 * no named events. Does NOT check the proof.
 */
export function readKeptStream(name: DialectName, events: readonly DialectEvent[]): KeptStream {
  const dialect = eventDialectOf(name)
  if (dialect === null) throw refuse('invalid_stream', 'expected chunks without names')
  const reader = openKeptStream(dialect)
  for (const event of events) reader.add(event)
  return reader.end()
}

/** Does the same as readKeptStream for events that arrive one after another. */
export function openKeptStream(dialect: EventDialect, onInput?: OnToolInput): KeptStreamReader {
  const reader = dialect.openStream(onInput, false)
  const hash = sha256.create()
  let last: DialectEvent | null = null
  return {
    add(kept) {
      if (isBare(kept)) return 'bare'
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
      hash.update(encodeUtf8(hashedLine(given.event, canonicalizeJson(given.data))))
      if (reader.isEnded) last = kept
      else if (proofOfEvent(dialect, kept) !== undefined)
        throw refuse('unsettled_event', 'expected a proof on the last event alone')
      return reader.isEnded ? 'last' : 'shown'
    },
    end() {
      if (last === null) throw refuse('cut_stream', 'expected the last event of the stream')
      const proof = proofOfEvent(dialect, last)
      if (proof === undefined)
        throw refuse('missing_proof', 'expected the last event to carry the proof')
      return { response: reader.response(), streamHash: encodeHex(hash.digest()), proof }
    },
  }
}

function isBare({ event, data }: DialectEvent): boolean {
  const { type } = data
  return (
    (type === 'ping' || type === 'keepalive') &&
    (event === '' || event === type) &&
    hasExactMembers(data, ['type'])
  )
}

/** The hash does not cover the proof, which enclaves add to the last event. */
function withoutProofs(dialect: EventDialect, { event, data }: DialectEvent): DialectEvent {
  const { proofIn } = dialect
  if (proofIn === null) return { event, data: withoutProof(data) }
  const owner = data[proofIn]
  if (proofOfEvent(dialect, { event, data }) === undefined) return { event, data }
  return { event, data: { ...data, [proofIn]: withoutProof(owner as JsonObject) } }
}
