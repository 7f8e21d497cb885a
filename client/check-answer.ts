import { type KeptAnswer, keptProofOf, streamOf } from '#attestation/compare-exchange.ts'
import type { CredentialDemand } from '#attestation/demands.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { type BootFacts, parseBootConfiguration } from '#attestation/evidence/boot-facts.ts'
import { checkOutcome } from '#attestation/evidence/document-checks.ts'
import { type Check, check } from '#attestation/finding.ts'
import { isJsonObject, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { parseLogProof } from '#attestation/log-proof-form.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
import { sayUnanswered, type Unanswered } from '#attestation/unanswered.ts'
import { type RecordCheckName, verifyRecord } from '#attestation/verify-record.ts'
import { type AttestedNotary, addressOfKey } from './attest-notary.ts'
import { AffidavitError, type AffidavitErrorCode, shown, withErrorCode } from './errors.ts'
import type { Notaries } from './notaries.ts'
import { type CallSends, unansweredIn } from './sends.ts'

/** The checks of an answer, in the order of the report. */
export type AnswerCheckName =
  | RecordCheckName
  | 'notary' // it belongs to an expected enclave
  | 'attestation document' // genuine, valid now, made by the notary's enclave
  | 'log domain' // the log's chain and contract are in the enclave's boot configuration
  | 'provider' // the provider is in the enclave's boot configuration
  | 'provider key' // the provider had a TLS key that the call demands; left out without a demand
  | 'outcome' // the answer was not cut
  | 'attempt' // the enclave did not make the call more often than this client sent it
  | 'credential' // the enclave used the credential that the call demands
  | 'encryption' // the enclave states correctly whether the call was encrypted

/** The outcome of one check. "Not checked" does not mean "passed". */
export type AnswerCheck = Check<AnswerCheckName>

export type SentCall = {
  readonly dialect: DialectName
  /**
   * The body as it was sent, parsed strictly. In a dialect other than chat: the object that is
   * hashed, with `dialect`, `headers` and `body`.
   */
  readonly request: JsonObject
  /** How this client sent calls with this nonce, this one included. */
  readonly sends: CallSends
  /** True if the caller chose the nonce: another client of his may have sent the same call. */
  readonly isOwnNonce: boolean
  /** The notary of the enclave that must make the call. */
  readonly notary: string
  /** Whose credential the enclave must use. */
  readonly credential: CredentialDemand
  /** TLS keys that the provider may have: SHA-256 of each, hex. Null: any key. */
  readonly providerKeys: readonly string[] | null
  /**
   * True if the call had an `Idempotency-Key`. The gateway may then repeat an answer in other
   * chunks.
   */
  readonly isIdempotent: boolean
  readonly isEncrypted: boolean
}

export type CheckedAnswer = {
  readonly checks: readonly AnswerCheck[]
  readonly notary: AttestedNotary
  readonly receipt: Receipt
  /** 64 hex digits. */
  readonly hash: string
  /** As the gateway states it: 0x and 32 bytes of hex. */
  readonly txHash: string
  /** Requests of the call for which nothing proves what was made. */
  readonly unanswered: readonly Unanswered[]
}

/**
 * Checks a whole answer, or all chunks of a stream, against the call and the notaries. Throws
 * AffidavitError with the code of the first fault, and with all checks that were made. Does NOT
 * prove: that the log's head is anchored (evidence proves that); that the provider ran
 * the model it names; that the call was not read on its way.
 */
export async function checkAnswer(
  answer: KeptAnswer,
  { call, notaries }: { readonly call: SentCall; readonly notaries: Notaries },
): Promise<CheckedAnswer> {
  const proof = proofOf(answer, call.dialect)
  const receipt = withErrorCode('wrong_receipt', () =>
    parseReceipt(memberOf(proof, 'receipt') ?? null),
  )
  const { checks } = verifyRecord(answer.kind === 'whole' ? answer.answer : proof, {
    request: call.request,
    ...streamOf(answer),
  })
  refuseFailed(checks)
  refuseUnmade(checks, answer)
  const publicKey = String(memberOf(proof, 'public_key'))
  const signer = addressOfKey(publicKey)
  if (signer !== call.notary)
    throw new AffidavitError(
      'unknown_notary',
      `expected an answer of ${call.notary}, which the call names; ${signer} signed it`,
      { checks },
    )
  const notary = await withChecks(checks, () => notaries.find(publicKey))
  const document = await withChecks(checks, () =>
    notaries.checkDocument(notary, String(memberOf(proof, 'attestation'))),
  )
  const unanswered = unansweredIn(call.sends, {
    notary: call.notary,
    attempt: receipt.attempt,
  })
  const made: readonly AnswerCheck[] = [
    ...checks,
    passed(
      'notary',
      `${notary.notary}, shown to be an expected enclave at ${notary.attestedAt.toISOString()}`,
    ),
    passed('attestation document', document),
    check('log domain', () => checkDomain(proof, bootFactsOf(notary))),
    check('provider', () => checkProvider(receipt, bootFactsOf(notary))),
    ...checkProviderKey(receipt, call),
    check('outcome', () => checkOutcome(receipt)),
    check('attempt', () => checkAttempt(receipt, call, unanswered)),
    check('credential', () => checkCredential(receipt, call)),
    check('encryption', () => checkEncryption(receipt, call)),
  ]
  refuseFailed(made)
  refuseCut(made)
  return {
    checks: made,
    notary,
    receipt,
    hash: receipt.hash,
    txHash: readTxHash(proof, made),
    unanswered,
  }
}

function proofOf(answer: KeptAnswer, dialect: DialectName): JsonObject {
  const proof = keptProofOf(answer, dialect)
  if (memberOf(proof, 'receipt') !== undefined) return proof
  if (memberOf(proof, 'error') !== undefined)
    throw new AffidavitError('error_in_answer', describeGatewayError(memberOf(proof, 'error')))
  throw new AffidavitError('no_proof', 'the answer has no proof: nothing shows who made it')
}

export function describeGatewayError(error: unknown): string {
  const members = isJsonObject(error as JsonObject) ? (error as JsonObject) : {}
  const { code, message } = members
  const said = [code, message].filter((text) => typeof text === 'string').map((text) => shown(text))
  return `the gateway gave an error in place of an answer: ${said.join(': ') || 'no message'}`
}

const CODES: Readonly<Record<AnswerCheckName, AffidavitErrorCode>> = {
  'request hash': 'wrong_request',
  'response hash': 'wrong_response',
  'stream hash': 'wrong_stream',
  hash: 'wrong_hash',
  'public key': 'wrong_key',
  signature: 'wrong_signature',
  receipt: 'wrong_receipt',
  created_at: 'invalid_answer',
  'attestation key': 'wrong_key',
  'receipt in log': 'not_in_log',
  'tree head': 'wrong_head',
  anchor: 'invalid_evidence',
  notary: 'unknown_notary',
  'attestation document': 'invalid_document',
  'log domain': 'wrong_head',
  provider: 'wrong_provider',
  'provider key': 'wrong_provider_key',
  outcome: 'incomplete',
  attempt: 'asked_again',
  credential: 'wrong_credential',
  encryption: 'wrong_receipt',
}

/**
 * The order in which failed checks are reported: causes before effects. For example, a changed
 * answer makes the checks of its hash and signature fail.
 */
const ORDER: readonly AnswerCheckName[] = [
  'public key',
  'attestation key',
  'request hash',
  'stream hash',
  'response hash',
  'hash',
  'signature',
  'receipt',
]

function refuseFailed(checks: readonly AnswerCheck[]): void {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  const first = ORDER.flatMap((name) => failed.filter((made) => made.name === name))[0] ?? failed[0]
  if (first === undefined) return
  throw refusal(first, checks)
}

/** Required checks: without them, nothing proves the answer or its receipt. */
const NEEDED: readonly AnswerCheckName[] = [
  'request hash',
  'hash',
  'public key',
  'signature',
  'receipt',
  'attestation key',
  'receipt in log',
  'tree head',
]

/** A stream needs only one of two checks: the hash of its response or the hash of its chunks. */
function refuseUnmade(checks: readonly AnswerCheck[], { kind }: KeptAnswer): void {
  const hasPassed = (name: AnswerCheckName) =>
    checks.some((made) => made.name === name && made.outcome === 'passed')
  const unmade = NEEDED.find((name) => !hasPassed(name))
  const isBound = hasPassed('response hash') || (kind !== 'whole' && hasPassed('stream hash'))
  const open = unmade ?? (isBound ? undefined : 'response hash')
  const found = checks.find(({ name }) => name === open)
  if (found !== undefined) throw refusal(found, checks)
}

function refuseCut(checks: readonly AnswerCheck[]): void {
  const outcome = checks.find(({ name }) => name === 'outcome')
  if (outcome !== undefined && outcome.outcome !== 'passed') throw refusal(outcome, checks)
}

function refusal({ name, detail }: AnswerCheck, checks: readonly AnswerCheck[]): AffidavitError {
  return new AffidavitError(CODES[name], `${name}: ${detail}`, { checks })
}

function bootFactsOf({ configuration }: AttestedNotary): BootFacts {
  return parseBootConfiguration(configuration)
}

function checkDomain(proof: JsonObject, { chainId, contract }: BootFacts): string {
  const log = parseLogProof(memberOf(proof, 'log') ?? null)
  if (log.chain_id !== chainId || log.contract !== contract)
    throw new Error(`expected a log for contract ${contract} on chain ${chainId}`)
  return `contract ${contract} on chain ${chainId}`
}

function checkProvider({ provider: { name, origin } }: Receipt, { providers }: BootFacts): string {
  if (!providers.some((entry) => entry.name === name && entry.origin === origin))
    throw new Error("expected a provider from the enclave's boot configuration")
  return `${name} at ${origin}`
}

/** Checks the TLS key in the receipt. The enclave also checks the key before it sends the call. */
function checkProviderKey(
  { provider: { tls } }: Receipt,
  { providerKeys }: SentCall,
): readonly AnswerCheck[] {
  if (providerKeys === null) return []
  const made = check('provider key', () => {
    if (tls === null || !providerKeys.includes(tls.spki_sha256))
      throw new Error(`expected a TLS key that the call demands, got ${tls?.spki_sha256 ?? 'none'}`)
    return tls.spki_sha256
  })
  return [made]
}

/**
 * Counts the requests of this call. A request that no enclave answered may have been made: then the
 * gateway chose this answer.
 */
function checkAttempt(
  receipt: Receipt,
  { sends, isOwnNonce, notary }: SentCall,
  unanswered: readonly Unanswered[],
) {
  const { attempt } = receipt
  if (isOwnNonce)
    return { notChecked: `the nonce is the caller's own; the enclave was asked ${attempt} times` }
  const sent = sends.times.get(notary) ?? 0
  if (attempt > sent)
    throw new Error(
      `expected the enclave to be asked ${sent} times, it was asked ${attempt} times: a ` +
        'gateway can repeat a call until it likes the answer',
    )
  const words = `asked ${attempt} times, sent ${sent} times`
  return unanswered.length === 0
    ? words
    : { notChecked: [words, ...unanswered.map((one) => sayUnanswered(one, notary))].join('; ') }
}

function checkCredential(receipt: Receipt, { credential: demand }: SentCall): string {
  const used = receipt.credential
  if (!used.demanded || (demand === 'operator') === (used.from === 'caller'))
    throw new Error('expected a receipt that says that the demanded credential was used')
  return demand === 'operator' ? "the operator's, as demanded" : "the caller's, as demanded"
}

function checkEncryption(receipt: Receipt, { isEncrypted }: SentCall) {
  if (receipt.encrypted !== isEncrypted)
    throw new Error(
      `expected a receipt that says the call was ${isEncrypted ? '' : 'not '}encrypted`,
    )
  return isEncrypted ? 'encrypted to the enclave' : { notChecked: 'the call was not encrypted' }
}

/** The gateway states the hash. Only the bundle proves it. */
function readTxHash(proof: JsonObject, checks: readonly AnswerCheck[]): string {
  const txHash = memberOf(proof, 'tx_hash')
  if (typeof txHash === 'string' && /^0x[0-9a-f]{64}$/.test(txHash)) return txHash
  throw new AffidavitError('no_proof', 'expected tx_hash to be 0x and 32 bytes of hex', { checks })
}

function passed(name: AnswerCheckName, detail: string): AnswerCheck {
  return { name, outcome: 'passed', detail }
}

/** Adds the checks that were made so far to the error. */
async function withChecks<Type>(
  checks: readonly AnswerCheck[],
  run: () => Promise<Type>,
): Promise<Type> {
  try {
    return await run()
  } catch (fault) {
    if (!(fault instanceof AffidavitError)) throw fault
    throw new AffidavitError(fault.code, fault.message, { cause: fault.cause, checks })
  }
}
