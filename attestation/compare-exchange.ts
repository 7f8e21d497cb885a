import { addressOf } from './account.ts'
import { decodeHex } from './bytes.ts'
import { isProofMember } from './completion-hash.ts'
import { assembleCompletion } from './dialects/chat/assemble-completion.ts'
import type { DialectEvent } from './dialects/dialect.ts'
import type { DialectName } from './dialects/dialect-names.ts'
import { DIALECTS, eventDialectOf, proofOfEvent } from './dialects/dialects.ts'
import { readKeptStream } from './dialects/kept-stream.ts'
import { isRepetition } from './dialects/repeated-stream.ts'
import { FormatError, ProofError } from './errors.ts'
import { attempt, type Check, check, type Finding } from './finding.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'
import { verifyLogProof } from './log-proof.ts'
import { parseLogProof } from './log-proof-form.ts'
import { ownMembers } from './own-members.ts'
import { parseReceipt, type Receipt } from './receipt.ts'
import { hashCompletion } from './record-hash.ts'
import type { RecordOptions } from './record-subject.ts'
import { sayUnanswered, type Unanswered } from './unanswered.ts'
import { verifyRecord } from './verify-record.ts'

/**
 * An answer that the caller kept: the whole answer, or all chunks of its stream, or all named
 * events of its stream, in order.
 */
export type KeptAnswer =
  | { readonly kind: 'whole'; readonly answer: Json }
  | {
      readonly kind: 'stream'
      readonly chunks: readonly Json[]
      /** True if the call was sent with an `Idempotency-Key`. Default: false. */
      readonly idempotent?: boolean
    }
  | {
      readonly kind: 'events'
      readonly events: readonly DialectEvent[]
      readonly idempotent?: boolean
    }

/** The data that a caller kept from one call. */
export type KeptExchange = {
  /**
   * The body of a chat call. For other dialects, an object with `dialect`, `headers` and `body`.
   */
  readonly request?: Json
  readonly answer?: KeptAnswer
}

/** The comparisons of kept data with evidence. */
export type ExchangeCheckName =
  | 'request given' //   the request has the evidence's request_hash
  | 'answer given' //    the answer has the evidence's response_hash (a stream: the stream_hash)
  | 'proof given' //     the answer and the evidence have the same proof members

/** The outcome of one comparison. A comparison that was not made has not passed. */
export type ExchangeCheck = Check<ExchangeCheckName>

/**
 * Compares evidence with the data that a caller kept from a call. `evidence` is a stored record or
 * the record of a bundle, whole or redacted. Evidence and answer are attacker-controlled: read
 * their text with parseExactJson, and the text of the caller's own request with parseStrictJson.
 * Checks only the parts that `kept` has. Never throws.
 *
 * Does NOT prove: that the evidence is valid (see verifyBundle and verifyRecord); that this caller
 * made the call, or made it only once. Callers who send the same request have the same request
 * hash, unless the request has a nonce.
 *
 * @example
 * const { record } = parseExactJson(bundleFile)
 * const request = parseStrictJson(requestFile)
 * const [check] = compareExchange(record, { request })
 * console.log(check.name, check.outcome) // request given passed
 */
export function compareExchange(evidence: Json, kept: KeptExchange): readonly ExchangeCheck[] {
  const record = isJsonObject(evidence) ? evidence : {}
  const { request, answer } = ownMembers(kept)
  return [
    ...(request === undefined
      ? []
      : [check('request given', () => compareRequest(record, request))]),
    ...(answer === undefined
      ? []
      : [
          check('answer given', () => compareAnswer(record, answer)),
          check('proof given', () => compareProof(record, answer)),
        ]),
  ]
}

/**
 * Checks that a kept stream is that of the record, also its proof. Throws ProofError and
 * FormatError.
 */
export function compareStream(record: JsonObject, stream: KeptAnswer): Finding {
  const compared = compareAnswer(record, stream)
  compareProof(record, stream)
  return compared
}

/** Names requests without an answer, beside the notary that answered. */
export function sayLost(record: JsonObject, unanswered: readonly Unanswered[]): string {
  const key = memberOf(record, 'public_key')
  const read = attempt(() => addressOf(decodeHex(String(key))))
  const notary = 'value' in read ? read.value : null
  return unanswered.map((one) => sayUnanswered(one, notary)).join('; ')
}

/**
 * Returns the kept parts that match the evidence, in the form of a record. `checks` is the result
 * of compareExchange. A response that is assembled from chunks can lack its usage.
 */
export function matchingParts(
  evidence: Json,
  kept: KeptExchange,
  checks: readonly ExchangeCheck[] = compareExchange(evidence, kept),
): { readonly request: JsonObject | null; readonly response: JsonObject | null } {
  const record = isJsonObject(evidence) ? evidence : {}
  const { request, answer } = ownMembers(kept)
  const hasPassed = (given: ExchangeCheckName) =>
    checks.some(({ name, outcome }) => name === given && outcome === 'passed')
  const said =
    answer === undefined || !hasPassed('answer given')
      ? null
      : attempt(() => keptResponseOf(answer, dialectNameOf(record)))
  return {
    request:
      isJsonObject(request) && hasPassed('request given')
        ? DIALECTS[dialectNameOf(record)].hashedRequest(request)
        : null,
    response: said !== null && 'value' in said ? said.value : null,
  }
}

/**
 * Fills the missing parts of a redacted or encrypted record with parts that a caller kept, so that
 * these parts can be checked. A part is used only if the receipt has its hash. A response without
 * its usage has another hash, so it is not used.
 */
export function completeRecord(record: JsonObject, kept: KeptExchange): JsonObject {
  const { request, response } = matchingParts(record, kept)
  const isWhole = response !== null && hasSignedHash(record, response)
  const filled = fillPart(record, 'request', request)
  return fillPart(filled, 'response', isWhole ? response : null)
}

function fillPart(
  record: JsonObject,
  part: 'request' | 'response',
  value: JsonObject | null,
): JsonObject {
  if (value === null || (memberOf(record, part) ?? null) !== null) return record
  const { [`${part}_hash`]: _, ...rest } = record
  return { ...rest, [part]: value }
}

/** True if `response` is the one whose hash the record's receipt has. */
export function hasSignedHash(record: JsonObject, response: JsonObject): boolean {
  const dialect = dialectNameOf(record)
  const { responseHash } = hashCompletion({ request: {}, response, dialect })
  return responseHash === receiptOf(record).response_hash
}

/**
 * Returns the response of a kept answer in the form of a record: assembled, without proof members.
 * Throws FormatError.
 */
export function keptResponseOf(answer: KeptAnswer, name: DialectName = 'chat'): JsonObject {
  if (answer.kind === 'events') return readKeptStream(name, answer.events).response
  const response =
    answer.kind === 'whole' ? objectOf(answer.answer) : assembleCompletion(chunksOf(answer))
  return DIALECTS[name].hashedResponse(response)
}

/**
 * The object with the proof members of a kept answer. Attacker-controlled: members may be missing.
 */
export function keptProofOf(answer: KeptAnswer, name: DialectName): JsonObject {
  switch (answer.kind) {
    case 'whole':
      return isJsonObject(answer.answer) ? DIALECTS[name].proofOf(answer.answer) : {}
    case 'stream':
      return answer.chunks.filter(isJsonObject).at(-1) ?? {}
    case 'events': {
      const dialect = eventDialectOf(name)
      if (dialect === null) return {}
      const proofs = answer.events.map((event) => proofOfEvent(dialect, event))
      return proofs.filter(isJsonObject).at(-1) ?? {}
    }
  }
}

/** The stream of a kept answer, in the form that verifyRecord takes. Empty for a whole answer. */
export function streamOf(
  answer: KeptAnswer,
): Pick<RecordOptions, 'chunks' | 'events' | 'idempotent'> {
  if (answer.kind === 'whole') return {}
  const { idempotent = false } = answer
  return answer.kind === 'events'
    ? { events: answer.events, idempotent }
    : { chunks: answer.chunks.filter(isJsonObject), idempotent }
}

function compareRequest(record: JsonObject, request: Json): Finding {
  if (!isJsonObject(request))
    throw new FormatError('invalid_exchange', 'expected the request to be an object')
  const dialect = dialectNameOf(record)
  const { requestHash } = hashCompletion({ request, response: {}, dialect })
  const { request_hash: expected } = receiptOf(record)
  if (requestHash !== expected)
    throw new ProofError(
      'other_request',
      `expected the request of the evidence, whose hash is ${expected}; ` +
        `the hash of the given request is ${requestHash}`,
    )
  return `the request of the evidence, SHA-256 ${requestHash}`
}

/** Checks the kept answer with verifyRecord, the record's proof and the hash of the request. */
function compareAnswer(record: JsonObject, answer: KeptAnswer): Finding {
  const dialect = dialectNameOf(record)
  if (answer.kind === 'events' || eventDialectOf(dialect) !== null)
    return compareEvents(record, answer)
  const withheld = { request: receiptOf(record).request_hash }
  const proof = proofOf(record)
  const { checks } =
    answer.kind === 'stream'
      ? verifyRecord(proof, {
          request: {},
          withheld,
          chunks: chunksOf(answer),
          idempotent: answer.idempotent === true,
        })
      : verifyRecord({ ...keptResponseOf(answer), ...proof }, { request: {}, withheld })
  const made = checks.filter(({ name }) => ANSWER_CHECKS.has(name))
  const failed = made.find(({ outcome }) => outcome === 'failed')
  if (failed !== undefined) throw new ProofError('other_answer', `${failed.name}: ${failed.detail}`)
  const passed = made.filter(({ outcome }) => outcome === 'passed')
  if (passed.length === 0)
    throw new ProofError('other_answer', 'expected the answer of the evidence')
  return `the answer of the evidence: ${passed.map(({ name, detail }) => `${name} ${detail}`).join(', ')}`
}

/** Compares an answer, whole or as a stream, in a dialect whose streams have named events. */
function compareEvents(record: JsonObject, answer: KeptAnswer): Finding {
  const dialect = dialectNameOf(record)
  const receipt = receiptOf(record)
  const kept = answer.kind === 'events' ? readKeptStream(dialect, answer.events) : null
  if (!hasSignedHash(record, kept?.response ?? keptResponseOf(answer, dialect)))
    throw new ProofError(
      'other_answer',
      `expected the answer of the evidence, whose hash is ${receipt.response_hash}`,
    )
  const isOther = kept !== null && kept.streamHash !== receipt.stream_hash
  const isRepeated = answer.kind === 'events' && answer.idempotent === true
  if (isOther && !(isRepeated && isRepetition(dialect, kept)))
    throw new ProofError('other_answer', 'expected the events that the enclave gave out')
  return `the answer of the evidence: response hash SHA-256 ${receipt.response_hash}`
}

const ANSWER_CHECKS: ReadonlySet<string> = new Set(['response hash', 'stream hash'])

function compareProof(record: JsonObject, answer: KeptAnswer): Finding {
  const shown =
    answer.kind === 'stream'
      ? chunksOf(answer).map(proofOf)
      : [givenProofOf(answer, dialectNameOf(record))]
  const members = shown.flatMap((proof) => Object.entries(proof))
  if (members.length === 0) return { notChecked: 'the answer shows no proof' }
  const other = members.find(([name, value]) => !isProofOf(record, name, value))
  if (other !== undefined)
    throw new ProofError(
      'other_proof',
      `expected ${other[0]} of the answer to be the same as in the evidence`,
    )
  return `${members.map(([name]) => name).join(', ')} as in the evidence`
}

/** Returns true for the record's value, and for a log proof of its receipt under another head. */
function isProofOf(record: JsonObject, name: string, value: Json): boolean {
  const expected = memberOf(record, name)
  if (expected !== undefined && canonicalizeJson(expected) === canonicalizeJson(value)) return true
  if (name !== 'log') return false
  const publicKey = memberOf(record, 'public_key')
  const found = attempt(() => {
    const proof = parseLogProof(value)
    const { chain_id: chainId, contract } = parseLogProof(memberOf(record, 'log') ?? null)
    if (proof.chain_id !== chainId || proof.contract !== contract)
      throw new ProofError('wrong_domain', "expected a head for the log's chain and contract")
    verifyLogProof({
      proof,
      receipt: receiptOf(record),
      publicKey: decodeHex(typeof publicKey === 'string' ? publicKey : ''),
    })
  })
  return !('fault' in found)
}

function receiptOf(record: JsonObject): Receipt {
  return parseReceipt(memberOf(record, 'receipt') ?? null)
}

function dialectNameOf(record: JsonObject): DialectName {
  return receiptOf(record).dialect
}

/** All members of the object that holds the proof: no hash covers those that it should not have. */
function givenProofOf(answer: KeptAnswer, name: DialectName): JsonObject {
  const proof = keptProofOf(answer, name)
  return name === 'chat' ? proofOf(proof) : proof
}

function proofOf(record: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(record).filter(([name]) => isProofMember(name)))
}

function chunksOf({ chunks }: Extract<KeptAnswer, { kind: 'stream' }>): readonly JsonObject[] {
  return chunks.map(objectOf)
}

function objectOf(value: Json): JsonObject {
  if (!isJsonObject(value))
    throw new FormatError(
      'invalid_exchange',
      'expected the answer, or each of its chunks, to be an object',
    )
  return value
}
