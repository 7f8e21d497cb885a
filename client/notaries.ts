import { addressOf } from '../attestation/account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes, sha256 } from '../attestation/bytes.ts'
import { FormatError, ProofError } from '../attestation/errors.ts'
import { digestBootConfiguration } from '../attestation/evidence/boot-configuration.ts'
import { type BootFacts, parseBootConfiguration } from '../attestation/evidence/boot-facts.ts'
import { checkExpectedConfiguration } from '../attestation/evidence/document-checks.ts'
import type { BundlePolicy } from '../attestation/evidence/policy.ts'
import { type Check, check } from '../attestation/finding.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../attestation/json/value.ts'
import { AttestationError } from '../attestation/nitro/attestation-error.ts'
import { decodeAttestationPayload } from '../attestation/nitro/document.ts'
import type { AttestationFacts } from '../attestation/nitro/facts.ts'
import {
  type AttestationVerifier,
  createAttestationVerifier,
} from '../attestation/nitro/verify-attestation.ts'
import { NOTARIES_MAX } from '../attestation/notary-list.ts'
import { nameRelease } from '../attestation/release/release-name.ts'
import { parseEncryptionKey, verifyEncryptionKey } from '../attestation/verify-encryption-key.ts'
import { type AskedGateway, askGateway } from './ask-gateway.ts'
import type { EncryptionTarget } from './encryption.ts'
import {
  AffidavitError,
  type AffidavitErrorCode,
  messageOf,
  shown,
  withErrorCode,
} from './errors.ts'

/** What was established of a notary's enclave. */
export type NotaryCheckName = 'attestation document' | 'nonce' | 'measurements' | 'configuration'

/** A notary whose enclave showed that it is an expected one. */
export type AttestedNotary = {
  /** Its address: 0x, lower case. */
  readonly notary: string
  /** 0x and 65 bytes of hex. */
  readonly publicKey: string
  /** When it showed it, and until when that holds: the end of its document's certificates. */
  readonly attestedAt: Date
  readonly validUntil: Date
  /** What it was booted with: providers, certificate authorities, chain, contract. */
  readonly configuration: JsonObject
  readonly checks: readonly Check<NotaryCheckName>[]
  /** What its document proves. */
  readonly facts: AttestationFacts
}

/** A notary that the gateway names, whose enclave was not shown to be an expected one. */
export type RefusedNotary = { readonly notary: string; readonly reason: AffidavitError }

/** The notaries that were found, and what answers are held against. */
export type Notaries = {
  /** Those that hold now, and those that were refused when they were asked last. */
  list(): {
    readonly attested: readonly AttestedNotary[]
    readonly refused: readonly RefusedNotary[]
  }
  /**
   * Asks the gateway for its notaries and has each enclave make a new document. Throws
   * AffidavitError `no_notary` when none holds (`document_not_yet_valid` when none does yet), and
   * as askGateway.
   */
  refresh(signal?: AbortSignal): Promise<void>
  /**
   * The notary of a public key (0x, hex), which holds now: a new one is asked for a document, and
   * one whose document ended. Throws AffidavitError `unknown_notary` with the cause.
   */
  find(publicKey: string): Promise<AttestedNotary>
  /**
   * Checks the document that an answer carries: genuine and valid now, of the notary's key, code
   * and configuration. Gives what it is, in words. Throws AffidavitError.
   */
  checkDocument(notary: AttestedNotary, base64: string): Promise<string>
  /**
   * A key that a call can be encrypted to, signed by the notary of an expected enclave. `gone`: the
   * notary whose key was just refused; then the gateway is asked for its keys first, and a key of
   * another notary is taken if there is one. Throws AffidavitError `no_encryption_key`, and as
   * refresh.
   */
  encryptionTarget(options: { readonly gone: string | null }): Promise<EncryptionTarget>
  /**
   * Holds enclaves to another policy from now on. What was established under the earlier policy no
   * longer counts: each enclave must show itself again before it is sent a call, or its answer is
   * taken.
   */
  replacePolicy(policy: BundlePolicy): void
  /** The policy that enclaves are held to. */
  policy(): BundlePolicy
  /** Whether a notary's enclave is known to be an expected one now. */
  isExpected(notary: string): boolean
  /**
   * Resolves when an expected enclave is known under the policy that replaced another. Throws as
   * refresh.
   */
  ensure(): Promise<void>
  /** What of a notary's configuration answers are compared with. */
  bootFactsOf(notary: AttestedNotary): BootFacts
}

/** Bytes of the nonce that a document is asked over. */
const NONCE_BYTES = 32
/** Keys that one notary may have: a new one an hour, each good for two. */
const KEYS_MAX = 16
/** A key that ends sooner is not used, milliseconds: the call has to be read by then. */
const KEY_MARGIN_MS = 60_000
/** A document is renewed when it has so little left, milliseconds: leaves of AWS live 3 hours. */
const RENEW_BEFORE_MS = 30 * 60_000
/** But not asked for again before this, milliseconds: a module may reuse a leaf to its end. */
const RENEW_PAUSE_MS = 60_000
/** How long a key that was refused is not asked about again: a hostile gateway names any number. */
const REFUSAL_MS = 10_000
/** Documents of answers that are remembered. An enclave makes a few a day. */
const DOCUMENTS_MAX = 64

/** What of a document was found, to be found again. */
type KnownDocument = { readonly facts: AttestationFacts; readonly endMs: number }

/** Keeps the notaries of one gateway. `now` is Unix milliseconds. */
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
  let isReplaced = false

  /** One question at a time for each notary. */
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
      const found = await askNotary(gateway, { notary, policy: held, verifier, now, signal })
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
    // The policy was replaced meanwhile: the result does not count.
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
    const { json } = await askGateway(
      gateway,
      '/v1/notaries',
      signal === undefined ? {} : { signal },
    )
    return readNotaries(json)
  }

  /** Takes the keys of expected enclaves. Keys that their notary did not sign are left out. */
  function takeKeys(named: readonly NamedNotary[]): void {
    keys = named.flatMap(({ notary, encryptionKeys }) => {
      const known = attested.get(notary)
      if (known === undefined) return []
      const { chainId, contract } = parseBootConfiguration(known.configuration)
      return encryptionKeys.flatMap((json) => {
        const key = readKey(json, { domain: { chainId, contract }, notary, atMs: now() })
        return key === null ? [] : [{ ...key, notary }]
      })
    })
  }

  async function renewKeys(): Promise<void> {
    // Documents need not be new: a notary's key is its enclave's as long as that runs.
    if (listAttested().length > 0) {
      takeKeys(await listNamed())
      if (usableKeys().length > 0) return
    }
    // Other enclaves may have taken the place of those that were known.
    await refresh()
  }

  function usableKeys(): readonly UsableKey[] {
    return keys.filter(({ notary, endMs }) => endMs - now() > KEY_MARGIN_MS && isExpected(notary))
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

  async function encryptionTarget({
    gone,
  }: {
    readonly gone: string | null
  }): Promise<EncryptionTarget> {
    const choose = () => {
      const usable = usableKeys()
      const others = usable.filter(({ notary }) => notary !== gone)
      const chosen = others.length > 0 ? others : usable
      return chosen[Math.floor(Math.random() * chosen.length)]
    }
    const known = gone === null ? choose() : undefined
    if (known !== undefined) return known
    const held = policy
    await renew()
    const found = choose()
    if (found !== undefined) return found
    if (held !== policy) return await encryptionTarget({ gone })
    throw new AffidavitError(
      'no_encryption_key',
      'no expected enclave signed a key to encrypt calls with; encrypt: false sends calls without encryption',
    )
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
    throw new AffidavitError(
      // All of them: then rather this machine's clock is wrong than each enclave another one.
      reasons.length > 0 && reasons.every(isEarly) ? 'document_not_yet_valid' : 'no_notary',
      reasons.length === 0
        ? 'the gateway has no enclave in use'
        : `no enclave of the gateway is as expected: ${named.map((notary, at) => `${notary}: ${reasons[at]?.code}: ${reasons[at]?.message}`).join('; ')}`,
      { cause: reasons[0] },
    )
  }

  async function find(publicKey: string): Promise<AttestedNotary> {
    const notary = addressOfKey(publicKey)
    const known = attested.get(notary)
    const leftMs = known === undefined ? 0 : known.validUntil.getTime() - now()
    if (known !== undefined && leftMs > 0) {
      // While the old document is valid, calls do not wait for the new one.
      const isFresh = now() - known.attestedAt.getTime() < RENEW_PAUSE_MS
      if (leftMs < RENEW_BEFORE_MS && !isFresh) attest(notary).catch(() => undefined)
      return known
    }
    attested.delete(notary)
    const lately = refused.get(notary)
    const isRefused = lately !== undefined && now() - lately.atMs < REFUSAL_MS
    try {
      if (isRefused) throw lately.reason
      return await attest(notary)
    } catch (fault) {
      const { code, message } = faultOf(fault)
      throw new AffidavitError(
        'unknown_notary',
        `the answer is signed by ${notary}, but ${notary} was not shown to be an expected enclave: ${code}: ${message}`,
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
    const facts = await verifyDocument(bytes, { policy: held, verifier, atMs: now() })
    if (held !== policy) return await verifyAnswersDocument(base64)
    documents.set(digest, { facts, endMs: endOf(facts) })
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
    encryptionTarget,
    find,
    policy: () => policy,
    isExpected,
    replacePolicy: (next) => {
      policy = next
      isReplaced = true
      attested.clear()
      refused.clear()
      documents.clear()
      keys = []
    },
    ensure: async () => {
      if (isReplaced && listAttested().length === 0) await renew()
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
    bootFactsOf: ({ configuration }) => parseBootConfiguration(configuration),
  }
}

const EMPTY = new Uint8Array()

/** A key that a notary signed, and when it ends. */
type UsableKey = EncryptionTarget & { readonly endMs: number }

/** A notary that a gateway names, and what it says of the keys of its enclave. */
type NamedNotary = { readonly notary: string; readonly encryptionKeys: readonly Json[] }

/** The notaries that a gateway names. What it says of them is asked of each enclave itself. */
function readNotaries(json: JsonObject): readonly NamedNotary[] {
  const list = memberOf(json, 'notaries')
  if (!isJsonArray(list) || list.length > NOTARIES_MAX)
    throw invalidReply(`notaries: expected an array of at most ${NOTARIES_MAX}`)
  const named = list.map((entry): NamedNotary => {
    const members = isJsonObject(entry) ? entry : {}
    const notary = memberOf(members, 'notary')
    if (typeof notary !== 'string' || !ADDRESS.test(notary))
      throw invalidReply('notaries: expected the address of each')
    // An older gateway names none.
    const keys = memberOf(members, 'encryption_keys') ?? []
    if (!isJsonArray(keys) || keys.length > KEYS_MAX)
      throw invalidReply(`encryption_keys: expected an array of at most ${KEYS_MAX}`)
    return { notary, encryptionKeys: keys }
  })
  return [...new Map(named.map((entry) => [entry.notary, entry])).values()]
}

/** Null for a key that is malformed, not its notary's, or not usable now. */
function readKey(
  json: Json,
  parts: Omit<Parameters<typeof verifyEncryptionKey>[0], 'key'>,
): Omit<UsableKey, 'notary'> | null {
  try {
    const key = parseEncryptionKey(json)
    return { publicKey: verifyEncryptionKey({ ...parts, key }), endMs: key.not_after * 1000 }
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return null
    throw fault
  }
}

const ADDRESS = /^0x[0-9a-f]{40}$/

/** Has the enclave of a notary make a document over a nonce of ours, and holds it to the policy. */
async function askNotary(
  gateway: AskedGateway,
  parts: {
    readonly notary: string
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly now: () => number
    readonly signal: AbortSignal | undefined
  },
): Promise<AttestedNotary> {
  const { notary, policy, now, signal } = parts
  const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES))
  // With the key: callers without a key do not delay callers with a key.
  const path = `/v1/attestation?nonce=${encodeHex(nonce)}&notary=${notary}`
  const { json } = await askGateway(gateway, path, {
    withKey: true,
    ...(signal === undefined ? {} : { signal }),
  })
  const attestation = memberOf(json, 'attestation')
  const configuration = memberOf(json, 'boot_configuration')
  if (typeof attestation !== 'string' || !isJsonObject(configuration))
    throw invalidReply('expected attestation and boot_configuration')
  const bytes = withErrorCode('invalid_document', () => decodeBase64(attestation))
  const atMs = now()
  const facts = await verifyDocument(bytes, { ...parts, nonce, atMs })
  const key = facts.publicKey
  if (key === null || addressOfKey(`0x${encodeHex(key)}`) !== notary)
    throw new AffidavitError('invalid_document', `expected the document of ${notary}`)
  return {
    notary,
    publicKey: `0x${encodeHex(key)}`,
    attestedAt: new Date(atMs),
    validUntil: new Date(endOf(facts)),
    configuration,
    facts,
    checks: [
      passed(
        'attestation document',
        `${facts.moduleId}, made ${new Date(facts.timestampMs).toISOString()}`,
      ),
      passed('nonce', `it contains the number ${encodeHex(nonce)}, which this client chose`),
      passed('measurements', nameCode(facts)),
      passed('configuration', checkConfiguration(configuration, { facts, bytes, policy })),
    ],
  }
}

/** Of its digest, and an expected one. */
function checkConfiguration(
  configuration: JsonObject,
  parts: {
    readonly facts: AttestationFacts
    readonly bytes: Uint8Array
    readonly policy: BundlePolicy
  },
): string {
  withErrorCode('invalid_reply', () => parseBootConfiguration(configuration))
  const digest = digestBootConfiguration(configuration)
  if (!equalBytes(parts.facts.userData ?? EMPTY, digest))
    throw new AffidavitError(
      'invalid_document',
      'expected the document to state the digest of the boot configuration',
    )
  const document = { value: decodeAttestationPayload(parts.bytes) }
  const { outcome, detail } = check('configuration', () =>
    checkExpectedConfiguration(digest, { document, policy: parts.policy }),
  )
  // Not checked is not passed.
  if (outcome !== 'passed') throw new AffidavitError('unexpected_configuration', detail)
  return detail
}

/** The facts of a document that is valid at `atMs` under the policy. Throws AffidavitError. */
async function verifyDocument(
  bytes: Uint8Array,
  parts: {
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly atMs: number
    readonly nonce?: Uint8Array
  },
): Promise<AttestationFacts> {
  const { measurements = [], releases, roots, revoked, allowDebug } = parts.policy
  try {
    return await parts.verifier.verify(
      bytes,
      {
        measurements,
        ...(releases === undefined ? {} : { releases }),
        ...(roots === undefined ? {} : { roots }),
        ...(revoked === undefined ? {} : { revoked }),
        ...(allowDebug === undefined ? {} : { allowDebug }),
        ...(parts.nonce === undefined ? {} : { nonce: parts.nonce }),
      },
      new Date(parts.atMs),
    )
  } catch (fault) {
    if (!(fault instanceof AttestationError)) throw fault
    throw new AffidavitError(codeOf(fault), `${fault.code}: ${fault.message}`, { cause: fault })
  }
}

/** What the reader does about a document that is refused, by the rule that it breaks. */
function codeOf({ code, rule }: AttestationError): AffidavitErrorCode {
  if (code === 'certificate_not_yet_valid' || code === 'document_from_future')
    return 'document_not_yet_valid'
  switch (rule) {
    case 18:
    case 21:
      return 'document_expired'
    case 23:
    case 24:
      return 'unexpected_code'
    default:
      return 'invalid_document'
  }
}

/** When a document's first certificate ends, Unix milliseconds. */
function endOf({ certificates }: AttestationFacts): number {
  return Math.min(...certificates.map(({ notAfterMs }) => notAfterMs))
}

function nameCode({ release, measurements }: AttestationFacts): string {
  if (release !== null) return nameRelease(release)
  return `PCR0 ${encodeHex(measurements.get(0) ?? EMPTY)}`
}

function addressOfKey(publicKey: string): string {
  return withErrorCode('wrong_key', () => addressOf(decodeHex(publicKey)))
}

function passed(name: NotaryCheckName, detail: string): Check<NotaryCheckName> {
  return { name, outcome: 'passed', detail }
}

/** Any fault, as what the client throws. */
function faultOf(fault: unknown): AffidavitError {
  if (fault instanceof AffidavitError) return fault
  return new AffidavitError('unreachable', shown(messageOf(fault)), { cause: fault })
}

function invalidReply(message: string): AffidavitError {
  return new AffidavitError('invalid_reply', message)
}
