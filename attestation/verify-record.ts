import { addressOf, type PointRecovery } from './account.ts'
import { concatBytes, decodeBase64, decodeHex, encodeHex, equalBytes, sha256 } from './bytes.ts'
import { checkOpenings } from './check-openings.ts'
import { asksForUsage, type ReceiptVersion } from './completion-hash.ts'
import { verifyCompletionSignature } from './completion-signature.ts'
import { type CallRequest, statedHeaders } from './dialects/call-request.ts'
import { assembleCompletion } from './dialects/chat/assemble-completion.ts'
import type { DialectEvent } from './dialects/dialect.ts'
import { type DialectName, dialectNamed } from './dialects/dialect-names.ts'
import { DIALECTS, type Dialect, dialectOfRequest } from './dialects/dialects.ts'
import { type KeptStream, readKeptStream } from './dialects/kept-stream.ts'
import { statedAbsence } from './erasure.ts'
import { FormatError, ProofError } from './errors.ts'
import { type Attempt, attempt, type Check, check, type Finding, need } from './finding.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberAt, memberOf } from './json/value.ts'
import { findLateMember } from './late-member.ts'
import { verifyLogHead, verifyReceiptInLog } from './log-proof.ts'
import { parseLogProof } from './log-proof-form.ts'
import { decodeAttestationPayload } from './nitro/document.ts'
import { ownMembers } from './own-members.ts'
import { dialectOfReceipt, parseReceipt, type Receipt } from './receipt.ts'
import { hashChunks, hashCompletion } from './record-hash.ts'
import { findReplacedMember } from './replaced-member.ts'

const { objectOf, textOf } = formsOf('missing_member')
const { textOf: hexTextOf } = formsOf('invalid_hex')

/** The checks of a record, in the order of the report. */
export type RecordCheckName =
  | 'request hash' //     the request hashes to the receipt's request_hash
  | 'response hash' //    its hash is the receipt's response_hash, and all its members are hashed
  | 'stream hash' //      the chunks are exactly the enclave's chunks, in their order
  | 'hash' //             the record's hash is the hash over the request hash and response hash
  | 'public key' //       a secp256k1 point, in its one form
  | 'signature' //        a signature by this key over the recomputed hash
  | 'receipt' //          belongs to this completion (only a log proves its other members)
  | 'created_at' //       the second in which the completion finished, by the receipt
  | 'attestation key' //  the attestation document names this key
  | 'receipt in log' //   the receipt, with every member, is the leaf at its index of the notary's log
  | 'tree head' //        this key signed the head of this log
  | 'anchor' //           tx_hash is a transaction that anchored the head

/** The outcome of one check. A check that was not made has not passed. */
export type RecordCheck = Check<RecordCheckName>

/** The result of verifyRecord. */
export type RecordReport = {
  readonly checks: readonly RecordCheck[]
  /** True if no check failed. Some checks may not have been made. */
  readonly ok: boolean
}

/** Optional inputs of verifyRecord. */
export type RecordOptions = {
  /** The request, if `record` is a create response (interface 2.3), which lacks it. */
  readonly request?: Json
  /**
   * All chunks of a streamed answer, in order, with the proof. `record` is then the chunk with the
   * proof.
   */
  readonly chunks?: readonly JsonObject[]
  /** As `chunks`, for a dialect with named events: all events of the stream, in order. */
  readonly events?: readonly DialectEvent[]
  /**
   * True if the caller sent the call with an `Idempotency-Key`: a repeated answer may have other
   * chunks for the same content. Default: false. Then the chunks must be exactly the enclave's.
   */
  readonly idempotent?: boolean
  /**
   * Hashes of parts that a stored record lacks (64 hex digits each), for redacted evidence. These
   * parts and their model are not checked, all else is checked from the hashes. The receipt of an
   * encrypted call has the hashes.
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

/**
 * Checks a record alone, without a network. The record is a stored record (interface 2.4, with
 * `receipt` and `log`) or, with `options.request`, a create response (2.3), whole or as
 * `options.chunks`. Never throws: a missing or malformed part fails the check that needs the part.
 *
 * Read the record's text with parseExactJson, which refuses what JSON.parse would silently drop or
 * round.
 *
 * Does NOT prove: that the attestation document is genuine and of expected measurements
 * (verifyAttestation); that the head was anchored by `tx_hash`, and when; that `id` and `tx_hash`
 * are what the gateway first gave; and of a create response without `log`, anything that its
 * receipt says beyond hashes and models.
 *
 * @example
 * const { ok, checks } = verifyRecord(parseExactJson(recordFile))
 * console.log(ok) // true
 * console.log(checks.find(({ name }) => name === 'signature').outcome) // passed
 */
export function verifyRecord(record: Json, given: RecordOptions = {}): RecordReport {
  const options = ownMembers(given)
  const subject = readSubject(record, options)
  const made = (name: RecordCheckName, find: () => Finding) => check(name, find, messageOf)
  const checks = [
    made('request hash', () => checkRequestHash(subject)),
    made('response hash', () => checkResponseHash(subject)),
    made('stream hash', () => checkStreamHash(subject)),
    made('hash', () => checkHash(subject)),
    made('public key', () => `account ${addressOf(need(subject.publicKey))}`),
    made('signature', () => checkSignature(subject, options.recover)),
    made('receipt', () => checkReceipt(subject)),
    made('created_at', () => checkCreatedAt(subject)),
    made('attestation key', () =>
      checkAttestationKey(subject, options.decodeAttestation ?? decodeAttestationPayload),
    ),
    made('receipt in log', () => checkReceiptInLog(subject)),
    made('tree head', () => checkTreeHead(subject, options.recover)),
    made('anchor', () =>
      skip('needs the transaction of tx_hash, from the chain or an evidence bundle'),
    ),
  ]
  return { checks, ok: checks.every(({ outcome }) => outcome !== 'failed') }
}

/** The parts of a record. The fault of an unreadable part fails each check that needs the part. */
type Subject = {
  readonly isStored: boolean
  readonly dialect: Dialect
  /** The events of a kept stream. Null if the answer is not a kept stream. */
  readonly events: readonly DialectEvent[] | null
  /** The chunks of a kept stream of a chat. Null without them. */
  readonly chunks: readonly JsonObject[] | null
  readonly idempotent: boolean
  /** True if a create response has a log proof, as stored records do. */
  readonly hasLog: boolean
  readonly version: ReceiptVersion
  readonly members: JsonObject
  readonly withheld: Withheld
  /** `computed`: hash of the record's response. `responseHash`: the signed hash. */
  readonly hashes: Readonly<
    Record<'requestHash' | 'computed' | 'responseHash' | 'hash', Attempt<string>>
  >
  /** True if the receipt's stream hash matches the chunks. */
  readonly isStream: Attempt<boolean>
  readonly publicKey: Attempt<Uint8Array>
  readonly receipt: Attempt<Receipt>
  readonly request: Attempt<JsonObject>
  /** The headers and the body in the request. */
  readonly call: Attempt<CallRequest>
  readonly response: Attempt<JsonObject>
}

function readSubject(record: Json, options: RecordOptions): Subject {
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
  const version = 'value' in receipt ? receipt.value.version : 3
  const request = attempt(() =>
    objectOf(isStored ? memberOf(members, 'request') : createRequest, 'the request'),
  )
  const call = attempt(() => dialect.readRequest(need(request)))
  const response = attempt(() =>
    kept === null ? readResponse(record, { isStored, chunks }) : need(kept).response,
  )
  const isStream = attempt(() => {
    if ('fault' in receipt) return false
    if (kept !== null) return streamHashOf(receipt.value) === need(kept).streamHash
    return chunks !== null && streamHashOf(receipt.value) === hashChunks(chunks)
  })
  const parts = { request, response, withheld, receipt, isStored, version, isStream, dialect }
  return {
    ...parts,
    call,
    members,
    events,
    chunks,
    idempotent,
    hasLog: memberOf(members, 'log') !== undefined,
    hashes: hashParts({ ...parts, chunks }),
    publicKey: attempt(() => readHex(members, 'public_key', PUBLIC_KEY_FORM)),
  }
}

/** The dialect in the receipt of a stored record. Receipts of versions 1 and 2 are of chats. */
function dialectOfStored(record: JsonObject): DialectName {
  return dialectNamed(memberAt(record, 'receipt', 'dialect'))
}

function proofOfKept(kept: Attempt<KeptStream>): JsonObject {
  return 'value' in kept && isJsonObject(kept.value.proof) ? kept.value.proof : {}
}

function streamHashOf(receipt: Receipt): string | null {
  return receipt.version === 1 ? null : receipt.stream_hash
}

/**
 * The missing parts of a stored record with `redacted`: each is null. Either the receipt
 * states that the call was encrypted, or the gateway states that it erased or cannot decrypt them.
 * Any other missing part is a fault.
 */
function withheldOf(members: JsonObject, receipt: Attempt<Receipt>): Withheld {
  if (memberOf(members, 'redacted') !== true || 'fault' in receipt) return {}
  const { value: made } = receipt
  const isEncrypted = made.version !== 1 && made.encrypted
  if (!isEncrypted && statedAbsence(members) === null) return {}
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
    return response
  }
  const members = objectOf(record, isStored ? 'the record' : 'the response')
  return isStored ? objectOf(memberOf(members, 'response'), 'the response') : members
}

function hashParts(
  subject: Pick<
    Subject,
    | 'request'
    | 'response'
    | 'withheld'
    | 'receipt'
    | 'isStored'
    | 'version'
    | 'dialect'
    | 'chunks'
    | 'isStream'
  >,
): Subject['hashes'] {
  const { withheld, isStored } = subject
  const dialect = subject.dialect.name
  const requestHash = attempt(
    () =>
      withheld.request ??
      hashCompletion({ request: need(subject.request), response: {}, dialect }).requestHash,
  )
  const computed = attempt(() => {
    // Only stored records of version 1 hash a provider's `log`. In other responses, `log` is the
    // gateway's proof.
    const version = isStored ? subject.version : 3
    return hashCompletion({ request: {}, response: need(subject.response), version, dialect })
      .responseHash
  })
  const responseHash = attempt(() => withheld.response ?? responseHashOf(subject, need(computed)))
  const hash = attempt(() =>
    encodeHex(sha256(concatBytes(decodeHex(need(requestHash)), decodeHex(need(responseHash))))),
  )
  return { requestHash, computed, responseHash, hash }
}

/**
 * The signed response has the usage, but the caller's chunks have it only on request. For chunks
 * without usage, only the stream hash is a proof, so the receipt's response_hash is returned.
 */
function responseHashOf(
  {
    receipt,
    request,
    chunks,
    isStream,
  }: Pick<Subject, 'receipt' | 'request' | 'chunks' | 'isStream'>,
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

function checkRequestHash(subject: Subject): Finding {
  const requestHash = need(subject.hashes.requestHash)
  requireEqual(
    need(subject.receipt).request_hash,
    requestHash,
    "the receipt's request_hash",
    'the request',
  )
  return subject.withheld.request === undefined
    ? `SHA-256 ${requestHash}`
    : skip(withheldReason('request'))
}

function checkResponseHash(subject: Subject): Finding {
  const isWithheld = subject.withheld.response !== undefined
  const response = isWithheld ? {} : need(subject.response)
  const hashed = subject.dialect.hashedResponse(response, subject.version)
  const unhashed = Object.keys(response).find((name) => !Object.hasOwn(hashed, name))
  if (subject.isStored && unhashed !== undefined)
    throw new FormatError(
      'unhashed_member',
      `expected no ${unhashed} in the response: it is not hashed there`,
    )
  const responseHash = need(subject.hashes.responseHash)
  requireEqual(
    need(subject.receipt).response_hash,
    responseHash,
    "the receipt's response_hash",
    'the response',
  )
  if (isWithheld) return skip(withheldReason('response'))
  if (subject.chunks !== null && need(subject.hashes.computed) !== responseHash)
    return skip(NO_USAGE)
  return `SHA-256 ${responseHash}`
}

const NO_USAGE =
  'the signed response has the usage, which was not asked for and is not in the chunks; the stream hash binds them'

function checkStreamHash(subject: Subject): Finding {
  const { chunks, events } = subject
  const kept = events ?? chunks
  const receipt = need(subject.receipt)
  if (receipt.version === 1) {
    if (chunks !== null) refuseAmbiguous(chunks)
    return skip('a receipt of version 1 has no stream hash')
  }
  if (receipt.stream_hash === null) {
    if (kept !== null)
      throw new ProofError('not_streamed', 'expected an answer that was not streamed')
    return skip('the answer was not streamed')
  }
  if (kept === null) return skip('needs the events as they came')
  if (need(subject.isStream))
    return `SHA-256 ${receipt.stream_hash} over ${kept.length} ${events === null ? 'chunks' : 'events'}`
  const isSameAnswer = need(subject.hashes.computed) === receipt.response_hash
  if (!isSameAnswer || !subject.idempotent)
    throw new ProofError(
      'wrong_stream',
      `expected the ${events === null ? 'chunks' : 'events'} that the enclave gave out, and no others${isSameAnswer ? CUT_OTHERWISE : ''}`,
    )
  // Events were read strictly: all readers assemble them to this answer.
  if (chunks !== null) refuseAmbiguous(chunks)
  return skip(REPEATED)
}

const CUT_OTHERWISE =
  ': these say the same, but were cut otherwise, as only those of a call with an Idempotency-Key may be'

/** Refuses chunks that readers may assemble differently: no stream hash covers these chunks. */
function refuseAmbiguous(chunks: readonly JsonObject[]): void {
  const replaced = findReplacedMember(chunks)
  if (replaced !== null)
    throw new ProofError(
      'wrong_stream',
      `expected chunks in which no ${replaced} replaces another one`,
    )
  const late = findLateMember(chunks)
  if (late !== null) throw new ProofError('wrong_stream', `expected chunks without ${late}`)
}

const REPEATED =
  'these are other chunks than those first given out, as when an answer is repeated for its Idempotency-Key; ' +
  'they say what the signed response says'

function checkHash(subject: Subject): Finding {
  const hash = need(subject.hashes.hash)
  requireEqual(memberOf(subject.members, 'hash'), hash, "the record's hash", 'request and response')
  return `SHA-256 ${hash}`
}

function checkSignature(subject: Subject, recover: PointRecovery | undefined): Finding {
  const signed = {
    hash: decodeHex(need(subject.hashes.hash)),
    signature: readHex(subject.members, 'signature', SIGNATURE_FORM),
    publicKey: need(subject.publicKey),
  }
  const { address } = verifyCompletionSignature(signed, recover)
  return `signed by ${address}`
}

function checkReceipt(subject: Subject): Finding {
  const receipt = need(subject.receipt)
  const { hash, requestHash, responseHash } = subject.hashes
  requireEqual(receipt.hash, need(hash), "the receipt's hash", 'request and response')
  requireEqual(receipt.request_hash, need(requestHash), "the receipt's request_hash", 'the request')
  requireEqual(
    receipt.response_hash,
    need(responseHash),
    "the receipt's response_hash",
    'the response',
  )
  checkDialect(subject, receipt)
  checkModels(subject, receipt)
  checkForm(subject, receipt)
  checkCredential(subject, receipt)
  if (!subject.isStored && !subject.hasLog) return skip(NO_LOG)
  const attempt = receipt.version !== 1 && receipt.attempt > 1 ? `, attempt ${receipt.attempt}` : ''
  return `leaf ${receipt.index}, ${receipt.outcome}, provider ${receipt.provider.name}${credentialWords(receipt)}${attempt}`
}

/** The owner of the credential. Only the gateway states it if not demanded and not encrypted. */
function credentialWords(receipt: Receipt): string {
  if (receipt.version !== 3) return ''
  const { from, demanded } = receipt.credential
  const whose = { caller: "the caller's credential", operator: "the operator's credential" }
  const words = from === 'none' ? 'no credential' : whose[from]
  return `, ${words}${demanded ? ' as the request demands' : ', which the request did not demand'}`
}

/** Enclaves refuse a call whose demands they cannot meet, so the receipt must meet them. */
function checkCredential({ dialect, request, withheld }: Subject, receipt: Receipt): void {
  if (withheld.request !== undefined || receipt.version !== 3) return
  const demand = dialect.demandsOf(need(request)).credential
  const { from, demanded } = receipt.credential
  const isAsDemanded =
    demand === undefined || (demand === 'operator' ? from !== 'caller' : from === 'caller')
  if (demanded !== (demand !== undefined) || !isAsDemanded)
    throw new ProofError(
      'wrong_credential',
      "expected the receipt's credential to be as the request demands",
    )
}

/** The receipt must have the dialect of the answer, and the headers of the request. */
function checkDialect({ dialect, call, withheld }: Subject, receipt: Receipt): void {
  if (dialectOfReceipt(receipt) !== dialect.name)
    throw new ProofError('wrong_dialect', `expected the receipt's dialect to be ${dialect.name}`)
  if (withheld.request !== undefined || receipt.version !== 3) return
  const headers = statedHeaders(need(call).headers)
  if (canonicalizeJson(headers) !== canonicalizeJson(receipt.headers))
    throw new ProofError(
      'wrong_headers',
      "expected the receipt's headers to be the headers of the request",
    )
}

/** The receipt must have a stream hash exactly if the request asks for a stream. */
function checkForm({ call, withheld }: Subject, receipt: Receipt): void {
  if (withheld.request !== undefined || receipt.version === 1) return
  if ((receipt.stream_hash !== null) !== (memberOf(need(call).body, 'stream') === true))
    throw new ProofError(
      'wrong_stream',
      'expected a stream_hash exactly where the request asks for a stream',
    )
}

function checkModels({ call, response, withheld }: Subject, { model }: Receipt): void {
  if (withheld.request === undefined && model.requested !== memberOf(need(call).body, 'model'))
    throw new ProofError(
      'wrong_model',
      "expected the receipt's model.requested to be the request's model",
    )
  if (withheld.response !== undefined) return
  const named = memberOf(need(response), 'model')
  if (model.returned !== (typeof named === 'string' ? named : null))
    throw new ProofError(
      'wrong_model',
      "expected the receipt's model.returned to be the response's model",
    )
}

function checkCreatedAt(subject: Subject): Finding {
  if (!subject.isStored) return skip('a create response has no created_at')
  const finishedAt = Math.floor(need(subject.receipt).finished_at / 1000)
  if (memberOf(subject.members, 'created_at') !== finishedAt)
    throw new ProofError(
      'wrong_time',
      "expected created_at to be the receipt's finished_at in whole seconds",
    )
  return new Date(finishedAt * 1000).toISOString()
}

function checkAttestationKey(
  subject: Subject,
  decode: NonNullable<RecordOptions['decodeAttestation']>,
): Finding {
  const text = textOf(memberOf(subject.members, 'attestation'), 'attestation')
  const { publicKey } = decode(decodeBase64(text))
  if (publicKey === null || !equalBytes(publicKey, need(subject.publicKey)))
    throw new ProofError(
      'wrong_key',
      "expected the attestation document to carry the record's public_key",
    )
  return 'the document carries this key; whether it is genuine is not part of this check'
}

function checkReceiptInLog(subject: Subject): Finding {
  if (!subject.isStored && !subject.hasLog) return skip(NO_LOG)
  const log = memberOf(subject.members, 'log') ?? null
  const { index, size } = verifyReceiptInLog({
    proof: parseLogProof(log),
    receipt: need(subject.receipt),
  })
  return `leaf ${index} of ${size}`
}

function checkTreeHead(subject: Subject, recover: PointRecovery | undefined): Finding {
  if (!subject.isStored && !subject.hasLog) return skip(NO_LOG)
  const log = memberOf(subject.members, 'log') ?? null
  const proof = parseLogProof(log)
  verifyLogHead({ proof, publicKey: need(subject.publicKey) }, recover)
  return `size ${proof.size}, for contract ${proof.contract} on chain ${proof.chain_id}`
}

const NO_LOG =
  'the answer has no log: hashes and models are of this completion, but nothing binds what else the receipt says'

function withheldReason(part: keyof Withheld): string {
  return `the ${part} was left out; only its hash is there, and it is the receipt's`
}

const PUBLIC_KEY_FORM = formOf(/^0x[0-9a-f]{130}$/)
const SIGNATURE_FORM = formOf(/^0x[0-9a-f]{130}$/)

/** The message without the error code: this file judges no document. */
function messageOf(fault: unknown): string {
  return fault instanceof Error ? fault.message : 'unknown fault'
}

function skip(reason: string): Finding {
  return { notChecked: reason }
}

function readHex(members: JsonObject, name: string, form: ReturnType<typeof formOf>): Uint8Array {
  return decodeHex(hexTextOf(memberOf(members, name), name, form))
}

function requireEqual(
  given: Json | undefined,
  computed: string,
  what: string,
  source: string,
): void {
  if (given !== computed)
    throw new ProofError(
      'wrong_hash',
      `expected ${what} to be ${computed}, as computed from ${source}`,
    )
}
