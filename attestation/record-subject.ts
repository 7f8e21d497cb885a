import type { PointRecovery } from './account.ts'
import { concatBytes, decodeHex, encodeHex, sha256 } from './bytes.ts'
import { checkOpenings } from './check-openings.ts'
import { asksForUsage, isProofMember, PROOF_MEMBERS } from './completion-hash.ts'
import type { CallRequest } from './dialects/call-request.ts'
import { assembleCompletion } from './dialects/chat/assemble-completion.ts'
import { type DialectEvent, PROOF_MEMBER } from './dialects/dialect.ts'
import { type DialectName, dialectNamed } from './dialects/dialect-names.ts'
import { DIALECTS, type Dialect, dialectOfRequest } from './dialects/dialects.ts'
import { type KeptStream, readKeptStream } from './dialects/kept-stream.ts'
import { statedAbsence } from './erasure.ts'
import { FormatError } from './errors.ts'
import { type Attempt, attempt, need } from './finding.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberAt, memberOf } from './json/value.ts'
import { ownMembers } from './own-members.ts'
import { parseReceipt, type Receipt } from './receipt.ts'
import { hashChunks, hashCompletion } from './record-hash.ts'

const { objectOf } = formsOf('missing_member')
const { textOf } = formsOf('invalid_hex')

/** Optional inputs of verifyRecord. */
export type RecordOptions = {
  /** The request, only if `record` is a create response (interface 2.3). */
  readonly request?: Json
  /** All chunks of a streamed answer, in order. `record` is then the chunk with the proof. */
  readonly chunks?: readonly JsonObject[]
  /** All events of a streamed answer, in order, for a dialect with named events. */
  readonly events?: readonly DialectEvent[]
  /**
   * True if the caller sent the call with an `Idempotency-Key`. A repeated answer can then have
   * other chunks for the same content. If false (default), the chunks must be exactly the
   * enclave's.
   */
  readonly idempotent?: boolean
  /**
   * Hashes (64 hex digits) of parts that a redacted record lacks. The checks use these hashes. The
   * missing parts and the model are not checked.
   */
  readonly withheld?: Withheld
  /**
   * Decodes an attestation document without verifying it. Throws if the document is malformed.
   * Default: decodeAttestationPayload.
   */
  readonly decodeAttestation?: (document: Uint8Array) => { readonly publicKey: Uint8Array | null }
  /** A faster recovery of the public key. See recoverPublicKey. */
  readonly recover?: PointRecovery
}

/** SHA-256 (hex) of the missing request or response. */
type Withheld = { readonly request?: string; readonly response?: string }

/** The parts of a record. An unreadable part fails each check that needs the part. */
export type RecordSubject = {
  readonly isStored: boolean
  readonly dialect: Dialect
  /** The events of a stored stream that the caller passed. Null for any other answer. */
  readonly events: readonly DialectEvent[] | null
  /** The chunks of a chat stream that the caller passed. Null for any other answer. */
  readonly chunks: readonly JsonObject[] | null
  readonly idempotent: boolean
  /** The stream of `events`. Null without events. */
  readonly kept: Attempt<KeptStream> | null
  /** True if the record has a log proof. A create response can lack this proof. */
  readonly hasLog: boolean
  readonly members: JsonObject
  readonly withheld: Withheld
  /** `computed`: hash of the record's response. `responseHash`: the hash that is signed. */
  readonly hashes: Readonly<
    Record<'requestHash' | 'computed' | 'responseHash' | 'hash', Attempt<string>>
  >
  /** True if the receipt's stream hash matches the chunks. */
  readonly isStream: Attempt<boolean>
  readonly publicKey: Attempt<Uint8Array>
  readonly receipt: Attempt<Receipt>
  readonly request: Attempt<JsonObject>
  readonly call: Attempt<CallRequest>
  readonly response: Attempt<JsonObject>
}

export function readSubject(record: Json, options: RecordOptions): RecordSubject {
  const { request: createRequest, chunks = null, events = null, idempotent = false } = options
  const isStored = createRequest === undefined
  const object = isJsonObject(record) ? record : {}
  const dialect = DIALECTS[isStored ? dialectOfStored(object) : dialectOfRequest(createRequest)]
  const kept = events === null ? null : attempt(() => readKeptStream(dialect.name, events))
  const members = isStored ? object : kept === null ? dialect.proofOf(object) : proofOfKept(kept)
  const receipt = attempt(() => parseReceipt(memberOf(members, 'receipt') ?? null))
  const withheld = ownMembers({
    ...(isStored ? withheldOf(members, receipt) : {}),
    ...ownMembers(options.withheld ?? {}),
  })
  const request = attempt(() =>
    objectOf(isStored ? memberOf(members, 'request') : createRequest, 'the request'),
  )
  const call = attempt(() => dialect.readRequest(need(request)))
  const response = attempt(() => {
    if (!isStored && dialect.name !== 'chat') refuseUnknownMembers(members)
    return kept === null ? readResponse(record, { isStored, chunks }) : need(kept).response
  })
  const isStream = attempt(() => {
    if ('fault' in receipt) return false
    if (kept !== null) return receipt.value.stream_hash === need(kept).streamHash
    return chunks !== null && receipt.value.stream_hash === hashChunks(chunks)
  })
  const parts = {
    isStored,
    dialect,
    events,
    chunks,
    idempotent,
    kept,
    hasLog: memberOf(members, 'log') !== undefined,
    members,
    withheld,
    isStream,
    publicKey: attempt(() => readHex65(members, 'public_key')),
    receipt,
    request,
    call,
    response,
  }
  return { ...parts, hashes: hashParts(parts) }
}

function dialectOfStored(record: JsonObject): DialectName {
  return dialectNamed(memberAt(record, 'receipt', 'dialect'))
}

/** No hash covers the member that holds the proof. */
function refuseUnknownMembers(proof: JsonObject): void {
  if (!Object.keys(proof).every((name) => isProofMember(name)))
    throw new FormatError(
      'unknown_member',
      `expected ${PROOF_MEMBER} to have no members but ${PROOF_MEMBERS.join(', ')}`,
    )
}

/** No hash covers proof members. Only those of the last chunk are checked. */
function refuseEarlyProof(chunks: readonly JsonObject[]): void {
  if (chunks.slice(0, -1).some((chunk) => PROOF_MEMBERS.some((name) => Object.hasOwn(chunk, name))))
    throw new FormatError('early_proof', 'expected no part of a proof before the last chunk')
}

function proofOfKept(kept: Attempt<KeptStream>): JsonObject {
  return 'value' in kept && isJsonObject(kept.value.proof) ? kept.value.proof : {}
}

/**
 * Returns the receipt's hashes of the missing (null) parts of a redacted record. Returns no hash
 * unless the receipt states an encrypted call, or the gateway states that it erased or cannot
 * decrypt content. Any other missing part is a fault.
 */
function withheldOf(members: JsonObject, receipt: Attempt<Receipt>): Withheld {
  if (memberOf(members, 'redacted') !== true || 'fault' in receipt) return {}
  const { value: made } = receipt
  if (!made.encrypted && statedAbsence(members) === null) return {}
  return {
    ...(memberOf(members, 'request') === null ? { request: made.request_hash } : {}),
    ...(memberOf(members, 'response') === null ? { response: made.response_hash } : {}),
  }
}

function readResponse(
  record: Json,
  {
    isStored,
    chunks,
  }: { readonly isStored: boolean; readonly chunks: readonly JsonObject[] | null },
): JsonObject {
  if (chunks !== null) {
    const response = assembleCompletion(chunks)
    checkOpenings(chunks)
    refuseEarlyProof(chunks)
    return response
  }
  const members = objectOf(record, isStored ? 'the record' : 'the response')
  return isStored ? objectOf(memberOf(members, 'response'), 'the response') : members
}

function hashParts(subject: Omit<RecordSubject, 'hashes'>): RecordSubject['hashes'] {
  const { withheld } = subject
  const dialect = subject.dialect.name
  const requestHash = attempt(
    () =>
      withheld.request ??
      hashCompletion({ request: need(subject.request), response: {}, dialect }).requestHash,
  )
  const computed = attempt(
    () => hashCompletion({ request: {}, response: need(subject.response), dialect }).responseHash,
  )
  const responseHash = attempt(() => withheld.response ?? responseHashOf(subject, need(computed)))
  const hash = attempt(() =>
    encodeHex(sha256(concatBytes(decodeHex(need(requestHash)), decodeHex(need(responseHash))))),
  )
  return { requestHash, computed, responseHash, hash }
}

/**
 * Chunks without usage cannot have the hash of the signed response, which includes the usage. If
 * the stream hash matches such chunks, returns the receipt's response_hash.
 */
function responseHashOf(
  { receipt, request, chunks, isStream }: Omit<RecordSubject, 'hashes'>,
  computed: string,
): string {
  if (
    chunks === null ||
    'fault' in receipt ||
    receipt.value.response_hash === computed ||
    !need(isStream)
  )
    return computed
  return asksForUsage(need(request)) ? computed : receipt.value.response_hash
}

/** Reads 65 bytes of 0x hex. Throws FormatError `invalid_hex`. */
export function readHex65(members: JsonObject, name: string): Uint8Array {
  return decodeHex(textOf(memberOf(members, name), name, HEX65_FORM))
}

const HEX65_FORM = formOf(/^0x[0-9a-f]{130}$/)
