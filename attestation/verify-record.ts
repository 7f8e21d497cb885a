import { addressOf, type PointRecovery } from './account.ts'
import { decodeBase64, decodeHex, equalBytes } from './bytes.ts'
import { verifyCompletionSignature } from './completion-signature.ts'
import { statedHeaders } from './dialects/call-request.ts'
import { isRepetition } from './dialects/repeated-stream.ts'
import { answeringModel } from './dialects/usage.ts'
import { FormatError, ProofError } from './errors.ts'
import { type Check, check, type Finding, need } from './finding.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formsOf } from './json/forms.ts'
import { type Json, type JsonObject, memberOf } from './json/value.ts'
import { findLateMember } from './late-member.ts'
import { verifyLogHead, verifyReceiptInLog } from './log-proof.ts'
import { type LogProof, parseLogProof } from './log-proof-form.ts'
import { decodeAttestationPayload } from './nitro/document.ts'
import { ownMembers } from './own-members.ts'
import type { Receipt } from './receipt.ts'
import { type RecordOptions, type RecordSubject, readHex65, readSubject } from './record-subject.ts'
import { findReplacedMember } from './replaced-member.ts'

const { textOf } = formsOf('missing_member')

/** The checks of a record, in the order of the report. */
export type RecordCheckName =
  | 'request hash' //     the receipt's request_hash is the hash of the request
  | 'response hash' //    the receipt's response_hash is the hash of the whole response
  | 'stream hash' //      the chunks are exactly the enclave's chunks, in their order
  | 'hash' //             the record's hash is the hash over the request hash and response hash
  | 'public key' //       a secp256k1 point, in canonical form
  | 'signature' //        a signature by this key over the recomputed hash
  | 'receipt' //          belongs to this completion (only a log proves its other members)
  | 'created_at' //       the second in which the completion finished, by the receipt
  | 'attestation key' //  the attestation document names this key
  | 'receipt in log' //   the log has this receipt, unchanged, at the index that the record names
  | 'tree head' //        this key signed the head of this log
  | 'anchor' //           tx_hash is a transaction that anchored the head

/** The outcome of one check. A check that was not made has not passed. */
export type RecordCheck = Check<RecordCheckName>

export type RecordReport = {
  readonly checks: readonly RecordCheck[]
  /** True if no check failed. Some checks may not have been made. */
  readonly ok: boolean
}

/**
 * Checks a record without a network: a stored record (interface 2.4, with `receipt` and `log`). If
 * `options.request` is set: a create response (2.3), or its last chunk with `options.chunks`. Never
 * throws: a missing or malformed part fails the check that needs the part.
 *
 * Read the record's text with parseExactJson, which refuses what JSON.parse would silently drop or
 * round.
 *
 * Does NOT prove: that the attestation document is genuine and of expected measurements
 * (verifyAttestation); that the head was anchored by `tx_hash`, and when; that `id` and `tx_hash`
 * have not changed since the gateway's first answer; for a create response without `log`, the
 * members of its receipt that are not hashes or models.
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
    made('anchor', () => skip('needs the transaction of tx_hash, from the chain or evidence')),
  ]
  return { checks, ok: checks.every(({ outcome }) => outcome !== 'failed') }
}

function checkRequestHash(subject: RecordSubject): Finding {
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

function checkResponseHash(subject: RecordSubject): Finding {
  const isWithheld = subject.withheld.response !== undefined
  const response = isWithheld ? {} : need(subject.response)
  const hashed = subject.dialect.hashedResponse(response)
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
  'the signed response has the usage, which was not asked for and is not in the chunks; ' +
  'the stream hash binds them'

function checkStreamHash(subject: RecordSubject): Finding {
  const { chunks, events } = subject
  const kept = events ?? chunks
  const receipt = need(subject.receipt)
  if (receipt.stream_hash === null) {
    if (kept !== null)
      throw new ProofError('not_streamed', 'expected an answer that was not streamed')
    return skip('the answer was not streamed')
  }
  if (kept === null) return skip('needs the events as they came')
  const parts = events === null ? 'chunks' : 'events'
  if (need(subject.isStream)) return `SHA-256 ${receipt.stream_hash} over ${kept.length} ${parts}`
  const isSameAnswer = need(subject.hashes.computed) === receipt.response_hash
  if (!isSameAnswer || !subject.idempotent) {
    const message = `expected the ${parts} that the enclave gave out, and no others`
    throw new ProofError('wrong_stream', isSameAnswer ? message + CUT_OTHERWISE : message)
  }
  if (chunks !== null) refuseAmbiguous(chunks)
  if (subject.kept !== null && !isRepetition(subject.dialect.name, need(subject.kept)))
    throw new ProofError(
      'wrong_stream',
      'expected the events that the enclave gave out, or those of a repetition',
    )
  return skip(REPEATED)
}

const CUT_OTHERWISE =
  ': these say the same, but were cut otherwise, ' +
  'as only those of a call with an Idempotency-Key may be'

/** Refuses chunks that readers may assemble differently, because no stream hash covers them. */
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
  'these are other chunks than those first given out, ' +
  'as when an answer is repeated for its Idempotency-Key; they say what the signed response says'

function checkHash(subject: RecordSubject): Finding {
  const hash = need(subject.hashes.hash)
  requireEqual(memberOf(subject.members, 'hash'), hash, "the record's hash", 'request and response')
  return `SHA-256 ${hash}`
}

function checkSignature(subject: RecordSubject, recover: PointRecovery | undefined): Finding {
  const signed = {
    hash: decodeHex(need(subject.hashes.hash)),
    signature: readHex65(subject.members, 'signature'),
    publicKey: need(subject.publicKey),
  }
  const { address } = verifyCompletionSignature(signed, recover)
  return `signed by ${address}`
}

function checkReceipt(subject: RecordSubject): Finding {
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
  const attempt = receipt.attempt > 1 ? `, attempt ${receipt.attempt}` : ''
  const words = `${credentialWords(receipt)}${attempt}`
  return `leaf ${receipt.index}, ${receipt.outcome}, provider ${receipt.provider.name}${words}`
}

/** For an unencrypted call without a demand, only the gateway states whose credential was used. */
function credentialWords(receipt: Receipt): string {
  const { from, demanded } = receipt.credential
  const whose = { caller: "the caller's credential", operator: "the operator's credential" }
  const words = from === 'none' ? 'no credential' : whose[from]
  return `, ${words}${demanded ? ' as the request demands' : ', which the request did not demand'}`
}

/** The receipt must meet the request's demand, because enclaves refuse any other call. */
function checkCredential({ dialect, request, withheld }: RecordSubject, receipt: Receipt): void {
  if (withheld.request !== undefined) return
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

/** Compares the receipt with the dialect of the answer and the headers of the request. */
function checkDialect({ dialect, call, withheld }: RecordSubject, receipt: Receipt): void {
  if (receipt.dialect !== dialect.name)
    throw new ProofError('wrong_dialect', `expected the receipt to name the API ${dialect.name}`)
  if (withheld.request !== undefined) return
  const headers = statedHeaders(need(call).headers)
  if (canonicalizeJson(headers) !== canonicalizeJson(receipt.headers))
    throw new ProofError(
      'wrong_headers',
      "expected the receipt's headers to be the headers of the request",
    )
}

/** The receipt must have a stream hash if, and only if, the request asks for a stream. */
function checkForm({ call, withheld }: RecordSubject, receipt: Receipt): void {
  if (withheld.request !== undefined) return
  if ((receipt.stream_hash !== null) !== (memberOf(need(call).body, 'stream') === true))
    throw new ProofError(
      'wrong_stream',
      'expected a stream_hash exactly where the request asks for a stream',
    )
}

function checkModels({ call, response, withheld }: RecordSubject, { model }: Receipt): void {
  if (withheld.request === undefined && model.requested !== memberOf(need(call).body, 'model'))
    throw new ProofError(
      'wrong_model',
      "expected the receipt's model.requested to be the request's model",
    )
  if (withheld.response !== undefined) return
  if (model.returned !== answeringModel(need(response)))
    throw new ProofError(
      'wrong_model',
      "expected the receipt's model.returned to be the model that answered",
    )
}

function checkCreatedAt(subject: RecordSubject): Finding {
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
  subject: RecordSubject,
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

function checkReceiptInLog(subject: RecordSubject): Finding {
  if (!subject.isStored && !subject.hasLog) return skip(NO_LOG)
  const { index, size } = verifyReceiptInLog({
    proof: logProofOf(subject),
    receipt: need(subject.receipt),
  })
  return `leaf ${index} of ${size}`
}

function checkTreeHead(subject: RecordSubject, recover: PointRecovery | undefined): Finding {
  if (!subject.isStored && !subject.hasLog) return skip(NO_LOG)
  const proof = logProofOf(subject)
  verifyLogHead({ proof, publicKey: need(subject.publicKey) }, recover)
  return `size ${proof.size}, for contract ${proof.contract} on chain ${proof.chain_id}`
}

function logProofOf({ members }: RecordSubject): LogProof {
  return parseLogProof(memberOf(members, 'log') ?? null)
}

const NO_LOG =
  'the answer has no log: hashes and models are of this completion, ' +
  'but nothing binds what else the receipt says'

function withheldReason(part: 'request' | 'response'): string {
  return `the ${part} was left out; only its hash is there, and it is the receipt's`
}

/** Returns the message without an error code. */
function messageOf(fault: unknown): string {
  return fault instanceof Error ? fault.message : 'unknown fault'
}

function skip(reason: string): Finding {
  return { notChecked: reason }
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
