import { sha384 } from '@noble/hashes/sha2.js'
import { concatBytes, decodeHex, encodeHex, encodeUtf8, equalBytes } from '../../bytes.ts'
import { canonicalizeJson } from '../../json/canonical.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberOf } from '../../json/value.ts'
import { orRefuse } from '../provider-error.ts'
import { dstackFault } from './dstack-codes.ts'

/** Real logs have about 30 events. An application can add more. */
const EVENTS_MAX = 4096

/** dstack and applications log events of this type. */
const RUNTIME_EVENT_TYPE = 0x08000001

/** The content is only claimed until the replay equals the quote. */
type DstackEvent = {
  /** The event extends this RTMR, 0 to 3. */
  readonly register: number
  readonly type: number
  readonly name: string
  readonly payload: Uint8Array
  /** SHA-384. For a runtime event, computed from the content. */
  readonly digest: Uint8Array
}

/**
 * Parses the attacker-controlled log: a JSON array, or a JSON string that holds an array. Computes
 * the digest of each runtime event: otherwise, a false payload with a true digest would pass the
 * replay. Of other events, only the digest counts. Throws ProviderEvidenceError.
 */
export function parseEventLog(bytes: Uint8Array): readonly DstackEvent[] {
  return orRefuse(dstackFault, 'event_log_malformed', () => {
    const outer = parseExactJson(bytes)
    const log = typeof outer === 'string' ? parseExactJson(encodeUtf8(outer)) : outer
    const events = forms.arrayOf(log, 'the log')
    if (events.length > EVENTS_MAX)
      throw dstackFault('event_log_too_long', `expected at most ${EVENTS_MAX} events`)
    return events.map(parseEvent)
  })
}

const forms = formsOf('event_log_malformed', 'event log: ')

function parseEvent(json: Json, index: number): DstackEvent {
  const where = `event ${index}`
  const event = forms.objectOf(json, where)
  const register = forms.countOf(memberOf(event, 'imr'), `imr of ${where}`)
  const type = forms.countOf(memberOf(event, 'event_type'), `event_type of ${where}`)
  if (register > 3 || type > 0xffffffff)
    throw forms.invalid(where, 'of register 0 to 3 and a type of 32 bits')
  const name = forms.textOf(memberOf(event, 'event'), `event of ${where}`)
  const payload = bytesOf(memberOf(event, 'event_payload'), `event_payload of ${where}`)
  const given = bytesOf(memberOf(event, 'digest'), `digest of ${where}`)
  const version = versionOf(memberOf(event, 'version') ?? 1, where)
  if (type !== RUNTIME_EVENT_TYPE) {
    if (given.length !== DIGEST_BYTES)
      throw dstackFault('event_digest_missing', `${where}: expected a digest of SHA-384`)
    return { register, type, name, payload, digest: given }
  }
  const digest = digestOf(name, payload, version)
  if (given.length > 0 && !equalBytes(given, digest))
    throw dstackFault('event_digest_mismatch', `${where}: expected the digest of its content`)
  return { register, type, name, payload, digest }
}

const DIGEST_BYTES = 48

function bytesOf(json: Json | undefined, name: string): Uint8Array {
  return decodeHex(forms.textOf(json, name, HEX))
}

const HEX = { form: /^(?:[0-9a-fA-F]{2})*$/, expectation: 'hex' }

function versionOf(json: Json, where: string): 1 | 2 {
  if (json !== 1 && json !== 2) throw forms.invalid(`version of ${where}`, '1 or 2')
  return json
}

/** The digest of a runtime event (dstack, cc-eventlog, versions 1 and 2). */
function digestOf(name: string, payload: Uint8Array, version: 1 | 2): Uint8Array {
  if (version === 2) {
    const content = { name, payload: encodeHex(payload), type: RUNTIME_EVENT_TYPE }
    return sha384(encodeUtf8(canonicalizeJson(content)))
  }
  const type = Uint8Array.of(1, 0, 0, 8)
  return sha384(concatBytes(type, COLON, encodeUtf8(name), COLON, payload))
}

const COLON = encodeUtf8(':')

/** Returns RTMR0 to RTMR3 after these events. Registers start as zeros. */
export function replayRegisters(events: readonly DstackEvent[]): readonly Uint8Array[] {
  const registers = Array.from({ length: 4 }, () => new Uint8Array(DIGEST_BYTES))
  for (const { register, digest } of events)
    registers[register] = sha384(concatBytes(registers[register] ?? new Uint8Array(), digest))
  return registers
}

/** Payloads by name. The system logged them before the application could log events. */
export type SystemEvents = ReadonlyMap<string, Uint8Array>

/**
 * Returns the events in RTMR3 before `system-ready`. After that event, the application can extend
 * RTMR3 under any name. Refuses events of another type, and names with a colon, because their
 * digest can equal the digest of a system event. The log is not signed: a forged log could disguise
 * a system event as such an event, and the application could log that system event later. Throws
 * ProviderEvidenceError, also if a name occurs twice or `system-ready` is missing.
 */
export function systemEventsOf(events: readonly DstackEvent[]): SystemEvents {
  const logged = events.filter(({ register }) => register === 3)
  const ready = logged.findIndex(({ name }) => name === SYSTEM_READY)
  const isDisguised = ({ type, name }: DstackEvent, index: number): boolean =>
    type !== RUNTIME_EVENT_TYPE || (index < ready && name.includes(':'))
  const disguised = logged.findIndex(isDisguised)
  if (disguised >= 0)
    throw dstackFault(
      'system_event_disguised',
      `event ${disguised} of RTMR3: expected a runtime event with a plain name`,
    )
  if (ready < 0) throw dstackFault('system_ready_missing', `expected an event ${SYSTEM_READY}`)
  const system = new Map<string, Uint8Array>()
  for (const { name, payload } of logged.slice(0, ready)) {
    if (system.has(name))
      throw dstackFault('system_event_repeated', `expected each event before ${SYSTEM_READY} once`)
    system.set(name, payload)
  }
  return system
}

const SYSTEM_READY = 'system-ready'
