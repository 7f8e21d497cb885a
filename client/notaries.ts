import { decodeBase64, decodeHex, encodeHex, equalBytes, sha256 } from '#attestation/bytes.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { NOTARIES_MAX } from '#attestation/notary-list.ts'
import { type AskedGateway, askGateway } from './ask-gateway.ts'
import {
  type AttestedNotary,
  addressOfKey,
  attestNotary,
  endOfDocument,
  nameCode,
  verifyNotaryDocument,
} from './attest-notary.ts'
import {
  type CallTarget,
  chooseTarget,
  hasTimeLeft,
  keysOfNotary,
  type NamedNotary,
  readNamedNotaries,
  type UsableKey,
  type WantedTarget,
} from './encryption-keys.ts'
import { AffidavitError, messageOf, shown, withErrorCode } from './errors.ts'

/** A notary that the gateway named, without proof that its enclave is an expected enclave. */
export type RefusedNotary = { readonly notary: string; readonly reason: AffidavitError }

export type Notaries = {
  list(): {
    readonly attested: readonly AttestedNotary[]
    readonly refused: readonly RefusedNotary[]
  }
  /**
   * Requests the list of notaries, and a new document from each enclave. Throws AffidavitError
   * `no_notary` if no enclave is as expected (`document_not_yet_valid` if no document is valid
   * yet), and the errors of askGateway.
   */
  refresh(signal?: AbortSignal): Promise<void>
  /**
   * Returns the attested notary with this public key (0x, hex). Asks the enclave for a document if
   * the notary is new or its document has expired. Throws AffidavitError `unknown_notary` with the
   * cause.
   */
  find(publicKey: string): Promise<AttestedNotary>
  /**
   * Checks that an answer's document is genuine and valid now, and has the notary's key, an
   * expected code and an expected configuration. Returns a description of the document. Throws
   * AffidavitError.
   */
  checkDocument(notary: AttestedNotary, base64: string): Promise<string>
  /**
   * Chooses the enclave for a call: an expected one, whose notary signed the key if the call is
   * encrypted. Throws AffidavitError `no_encryption_key`, and the errors of refresh.
   */
  target(wanted: WantedTarget): Promise<CallTarget>
  /**
   * Replaces the policy. Results under the old policy no longer count: each enclave must be
   * attested again before it receives a call, or before its answer is accepted.
   */
  replacePolicy(policy: BundlePolicy): void
  policy(): BundlePolicy
  /** Returns true if the notary's enclave is attested now as an expected enclave. */
  isExpected(notary: string): boolean
}

/** A document is renewed when less time is left. AWS's leaf certificates live 3 hours. */
const RENEW_BEFORE_MS = 30 * 60_000
/**
 * Pause between renewals, milliseconds. A new document can expire as early as the old one: a
 * security module can reuse its leaf certificate.
 */
const RENEW_PAUSE_MS = 60_000
/**
 * How long a refusal counts, milliseconds. Without this pause, a hostile gateway could cause a
 * request for each key that it names. The pause also ends if the clock is set back.
 */
const REFUSAL_MS = 10_000
/** Maximum number of documents in memory. By default, an enclave makes one document per hour. */
const DOCUMENTS_MAX = 64

const EMPTY = new Uint8Array()

/** `endMs`: Unix milliseconds. */
type KnownDocument = { readonly facts: AttestationFacts; readonly endMs: number }

/** `now` returns Unix milliseconds. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one state
export function createNotaries(
  gateway: AskedGateway,
  options: { readonly policy: BundlePolicy; readonly now: () => number },
): Notaries {
  const { now } = options
  let { policy } = options
  const verifier = createAttestationVerifier()
  const attested = new Map<string, AttestedNotary>()
  const refused = new Map<string, RefusedNotary & { readonly atMs: number }>()
  const asking = new Map<string, Promise<AttestedNotary>>()
  const documents = new Map<string, KnownDocument>()
  let keys: readonly UsableKey[] = []
  let renewing: Promise<void> | null = null

  /** At most one request at a time is made for each notary. */
  function attest(notary: string, signal?: AbortSignal): Promise<AttestedNotary> {
    const running = asking.get(notary)
    if (running !== undefined) return running
    const question = ask(notary, signal).finally(() => asking.delete(notary))
    asking.set(notary, question)
    return question
  }

  async function ask(notary: string, signal?: AbortSignal): Promise<AttestedNotary> {
    const held = policy
    try {
      const found = await attestNotary(gateway, { notary, policy: held, verifier, now, signal })
      if (held === policy) {
        refused.delete(notary)
        attested.set(notary, found)
        return found
      }
    } catch (fault) {
      const reason = faultOf(fault)
      if (held === policy || signal?.aborted) {
        refuse(notary, reason)
        throw reason
      }
    }
    // The policy was replaced during the request, so its result does not count.
    return await ask(notary, signal)
  }

  function refuse(notary: string, reason: AffidavitError): void {
    refused.delete(notary)
    refused.set(notary, { notary, reason, atMs: now() })
    for (const oldest of refused.keys()) if (refused.size > NOTARIES_MAX) refused.delete(oldest)
  }

  function listAttested(): readonly AttestedNotary[] {
    return [...attested.values()].filter(({ validUntil }) => validUntil.getTime() > now())
  }

  async function listNamed(signal?: AbortSignal): Promise<readonly NamedNotary[]> {
    const { json } = await askGateway(gateway, '/v1/notaries', { signal })
    return readNamedNotaries(json)
  }

  function takeKeys(named: readonly NamedNotary[]): void {
    keys = named.flatMap(({ notary, encryptionKeys: stated }) => {
      const known = attested.get(notary)
      return known === undefined ? [] : keysOfNotary(known, { stated, atMs: now() })
    })
  }

  async function renewKeys(): Promise<void> {
    // An attested notary signs its encryption keys, so a new key needs no new document.
    if (listAttested().length > 0) {
      takeKeys(await listNamed())
      if (usableKeys().length > 0) return
    }
    // Other enclaves may have replaced the known enclaves.
    await refresh()
  }

  function usableKeys(): readonly UsableKey[] {
    return keys.filter((key) => hasTimeLeft(key, now()) && isExpected(key.notary))
  }

  function isExpected(notary: string): boolean {
    return (attested.get(notary)?.validUntil.getTime() ?? 0) > now()
  }

  function renew(): Promise<void> {
    renewing ??= renewKeys().finally(() => {
      renewing = null
    })
    return renewing
  }

  async function target(wanted: WantedTarget): Promise<CallTarget> {
    if (wanted.gone === null) {
      const known = chooseTarget(targets(wanted), wanted)
      if (known !== undefined) return known
    }
    const held = policy
    await (wanted.encrypt ? renew() : refresh())
    const found = chooseTarget(targets(wanted), wanted)
    if (found !== undefined) return found
    if (held !== policy) return await target(wanted)
    throw new AffidavitError(
      wanted.encrypt ? 'no_encryption_key' : 'no_notary',
      wanted.encrypt
        ? 'no expected enclave signed a key to encrypt calls with; encrypt: false sends calls without encryption'
        : 'no expected enclave takes the call',
    )
  }

  function targets({ encrypt, only }: WantedTarget): readonly CallTarget[] {
    const usable = encrypt
      ? usableKeys()
      : listAttested().map(({ notary }) => ({ notary, publicKey: null }))
    return usable.filter(({ notary }) => only === null || notary === only)
  }

  async function refresh(signal?: AbortSignal): Promise<void> {
    const entries = await listNamed(signal)
    const named = entries.map(({ notary }) => notary)
    for (const known of attested.keys()) if (!named.includes(known)) attested.delete(known)
    const outcomes = await Promise.allSettled(named.map((notary) => attest(notary, signal)))
    signal?.throwIfAborted()
    takeKeys(entries)
    if (outcomes.some(({ status }) => status === 'fulfilled')) return
    const reasons = outcomes.flatMap((outcome) =>
      outcome.status === 'rejected' ? [faultOf(outcome.reason)] : [],
    )
    const isEarly = ({ code }: AffidavitError) => code === 'document_not_yet_valid'
    const refusals = named.map((notary, at) => {
      const { code, message } = reasons[at] ?? {}
      return `${notary}: ${code}: ${message}`
    })
    throw new AffidavitError(
      // If no document is valid yet, the local clock is probably wrong.
      reasons.length > 0 && reasons.every(isEarly) ? 'document_not_yet_valid' : 'no_notary',
      reasons.length === 0
        ? 'the gateway has no enclave in use'
        : `no enclave of the gateway is as expected: ${refusals.join('; ')}`,
      { cause: reasons[0] },
    )
  }

  async function find(publicKey: string): Promise<AttestedNotary> {
    const notary = addressOfKey(publicKey)
    const known = attested.get(notary)
    const leftMs = known === undefined ? 0 : known.validUntil.getTime() - now()
    if (known !== undefined && leftMs > 0) {
      // Calls do not wait for a new document while the old document is valid.
      const isFresh = Math.abs(now() - known.attestedAt.getTime()) < RENEW_PAUSE_MS
      if (leftMs < RENEW_BEFORE_MS && !isFresh) attest(notary).catch(() => undefined)
      return known
    }
    attested.delete(notary)
    const lately = refused.get(notary)
    const isRefused = lately !== undefined && Math.abs(now() - lately.atMs) < REFUSAL_MS
    try {
      if (isRefused) throw lately.reason
      return await attest(notary)
    } catch (fault) {
      const { code, message } = faultOf(fault)
      throw new AffidavitError(
        'unknown_notary',
        `the answer is signed by ${notary}, but ${notary} was not shown to be an expected ` +
          `enclave: ${code}: ${message}`,
        { cause: fault },
      )
    }
  }

  async function verifyAnswersDocument(base64: string): Promise<AttestationFacts> {
    const bytes = withErrorCode('invalid_document', () => decodeBase64(base64))
    const digest = encodeHex(sha256(bytes))
    const known = documents.get(digest)
    if (known !== undefined && known.endMs > now()) return known.facts
    const held = policy
    const facts = await verifyNotaryDocument(bytes, { policy: held, verifier, atMs: now() })
    if (held !== policy) return await verifyAnswersDocument(base64)
    documents.set(digest, { facts, endMs: endOfDocument(facts) })
    for (const oldest of documents.keys())
      if (documents.size > DOCUMENTS_MAX) documents.delete(oldest)
    return facts
  }

  return {
    list: () => ({
      attested: listAttested(),
      refused: [...refused.values()].map(({ notary, reason }) => ({ notary, reason })),
    }),
    refresh,
    target,
    find,
    policy: () => policy,
    isExpected,
    replacePolicy: (next) => {
      policy = next
      attested.clear()
      refused.clear()
      documents.clear()
      keys = []
    },
    checkDocument: async ({ publicKey, facts: { userData } }, base64) => {
      const facts = await verifyAnswersDocument(base64)
      if (!equalBytes(facts.publicKey ?? EMPTY, decodeHex(publicKey)))
        throw new AffidavitError('wrong_key', "expected the document to carry the answer's key")
      if (!equalBytes(facts.userData ?? EMPTY, userData ?? EMPTY))
        throw new AffidavitError(
          'unexpected_configuration',
          'expected the document to state the same configuration as before',
        )
      return `${facts.moduleId} at ${new Date(facts.timestampMs).toISOString()}, ${nameCode(facts)}`
    },
  }
}

function faultOf(fault: unknown): AffidavitError {
  if (fault instanceof AffidavitError) return fault
  return new AffidavitError('unreachable', shown(messageOf(fault)), { cause: fault })
}
