import { addressOf } from '../account.ts'
import { decodeBase64, encodeHex, equalBytes } from '../bytes.ts'
import { NotAcceptedError, ProofError } from '../errors.ts'
import { type Attempt, attempt, check, type Finding, need, reasonOf } from '../finding.ts'
import { checkMeasurements, type MatchedCode } from '../nitro/checks.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { type AttestationPolicy, FUTURE_SKEW_MS_DEFAULT, PolicyError } from '../nitro/policy.ts'
import { type AttestationVerifier, verifyAttestation } from '../nitro/verify-attestation.ts'
import type { Receipt } from '../receipt.ts'
import { configurationOf, type Release } from '../release/release.ts'
import { nameRelease } from '../release/release-name.ts'
import { digestBootConfiguration } from './boot-configuration.ts'
import { parseBootConfiguration } from './boot-facts.ts'
import type { EvidenceBundle } from './bundle.ts'
import type { BundleCheck } from './bundle-checks.ts'
import { type BundlePolicy, expectsCode } from './policy.ts'

/**
 * Returns the facts of a document that was genuine at its own time (historical mode), or the fault.
 * Does not check the measurements. Rejects with PolicyError if the policy is invalid.
 */
export async function verifyDocument(
  bytes: Attempt<Uint8Array>,
  { roots, revoked, allowDebug }: BundlePolicy,
  attestations: AttestationVerifier = { verify: verifyAttestation },
): Promise<Attempt<AttestationFacts>> {
  const policy: AttestationPolicy = {
    // Another check compares the measurements.
    measurements: 'any',
    mode: 'historical',
    ...(roots === undefined ? {} : { roots }),
    ...(revoked === undefined ? {} : { revoked }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
  }
  try {
    return { value: await attestations.verify(need(bytes), policy, UNUSED_TIME) }
  } catch (fault) {
    if (fault instanceof PolicyError) throw fault
    return { fault }
  }
}

/** Not used: historical mode takes the document's own time. */
const UNUSED_TIME = new Date(0)

export function describeDocument({
  moduleId,
  timestampMs,
  isDebugMode,
}: AttestationFacts): Finding {
  const debug = isDebugMode ? '; IN DEBUG MODE, in which the host can read the key' : ''
  return `${moduleId} at ${new Date(timestampMs).toISOString()}${debug}`
}

/**
 * Checks that the caller expects the document's measurements. Not checked without `facts`, because
 * a forged document can state any measurements. Throws AttestationError.
 */
export function checkExpectedMeasurements(
  document: Attempt<AttestationDocument>,
  { facts, policy }: { readonly facts: Attempt<AttestationFacts>; readonly policy: BundlePolicy },
): Finding {
  if (!expectsCode(policy)) return { notChecked: 'no expected measurements were given' }
  if ('fault' in facts) return sayNotValid(facts.fault)
  const { measurements = [], releases = [] } = policy
  const matched = checkMeasurements(need(document), { measurements, releases })
  if (matched.release !== null) return nameRelease(matched.release)
  return `all ${measurements[matched.matchedSet ?? 0]?.size ?? 0} measurements of an expected set`
}

function sayNotValid(fault: unknown): Finding {
  return { notChecked: `the document is not valid: ${reasonOf(fault)}` }
}

/**
 * The set or release in the policy that matches the document. Null if the policy expects no code.
 * Throws AttestationError.
 */
export function findExpectedCode(
  document: AttestationDocument,
  policy: BundlePolicy,
): MatchedCode | null {
  const { measurements = [], releases = [] } = policy
  return expectsCode(policy) ? checkMeasurements(document, { measurements, releases }) : null
}

/** The indexes of the expected set that matched, ascending. Empty if no set matched. */
export function registersOf(
  expected: AttestationPolicy['measurements'] | undefined,
  matchedSet: number | null | undefined,
): readonly number[] {
  if (expected === undefined || expected === 'any') return []
  return [...(expected[matchedSet ?? -1]?.keys() ?? [])].sort((one, other) => one - other)
}

/**
 * Checks that the caller expects the digest of a boot configuration. If the matched release names a
 * configuration, its digest must be the same. Do not take the expected digest from the gateway
 * under test, because that digest always matches. Throws ProofError.
 */
export function checkExpectedConfiguration(
  digest: Uint8Array,
  {
    document,
    policy,
  }: { readonly document: Attempt<AttestationDocument>; readonly policy: BundlePolicy },
): Finding {
  const { configurations = [] } = policy
  const release = findRelease(document, policy)
  const signed = release && configurationOf(release)
  if (configurations.length === 0 && signed === null)
    return {
      notChecked:
        'no expected configurations were given, by a release or otherwise; ' +
        `this one is ${encodeHex(digest)}`,
    }
  if (signed !== null && !equalBytes(signed, digest))
    throw new NotAcceptedError(
      'unexpected_configuration',
      `expected the configuration of the release, ${encodeHex(signed)}, got ${encodeHex(digest)}`,
    )
  if (configurations.length > 0 && !configurations.some((expected) => equalBytes(expected, digest)))
    throw new NotAcceptedError(
      'unexpected_configuration',
      `expected ${configurations.map(encodeHex).join(' or ')}, got ${encodeHex(digest)}`,
    )
  return release === null || signed === null
    ? 'the configuration is an expected one'
    : `the configuration that ${nameRelease(release)} was signed with`
}

/** Checks that the document names the notary's key. Throws ProofError `wrong_key`. */
export function checkDocumentKey({ publicKey }: AttestationDocument, notary: string): Finding {
  if (publicKey === null || addressOf(publicKey) !== notary)
    throw new ProofError('wrong_key', `expected the document to name the key of ${notary}`)
  return `the key of ${notary}`
}

/**
 * Checks that `createdAt` is the time of the document in whole seconds. Throws ProofError
 * `wrong_time`.
 */
export function checkCreatedAt({ timestampMs }: AttestationDocument, createdAt: number): Finding {
  const second = Math.floor(timestampMs / 1000)
  if (createdAt !== second)
    throw new ProofError(
      'wrong_time',
      `expected created_at to be the second of the document, ${second}`,
    )
  return `Unix second ${second}`
}

/**
 * Returns the expected release that the document matches. Null if no release matches: the check of
 * measurements reports that.
 */
function findRelease(document: Attempt<AttestationDocument>, policy: BundlePolicy): Release | null {
  const found = attempt(() => findExpectedCode(need(document), policy)?.release ?? null)
  return 'fault' in found ? null : found.value
}

/**
 * Checks which code holds the key, and with which configuration the enclave booted. The document is
 * verified at its own time (historical mode), because the anchor proves the latest time of the
 * record.
 */
export async function checkEnclave(
  bundle: EvidenceBundle,
  policy: BundlePolicy,
  attestations?: AttestationVerifier,
): Promise<readonly BundleCheck[]> {
  const bytes = attempt(() => decodeBase64(bundle.record.attestation))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyDocument(bytes, policy, attestations)
  return [
    check('attestation document', () => describeDocument(need(facts))),
    check('attestation time', () => checkTime(bundle, facts)),
    check('measurements', () => checkExpectedMeasurements(document, { facts, policy })),
    check('boot configuration', () => checkBootConfiguration(bundle, need(document))),
    check('expected configuration', () =>
      checkExpectedConfiguration(digestBootConfiguration(bundle.boot_configuration), {
        document,
        policy,
      }),
    ),
    check('provider', () => checkProvider(bundle)),
  ]
}

/**
 * Checks that the completion finished while the document was valid, with a tolerance for clocks.
 * Not checked without `facts`, because a forged document can state any times.
 */
function checkTime({ record }: EvidenceBundle, facts: Attempt<AttestationFacts>): Finding {
  if ('fault' in facts) return sayNotValid(facts.fault)
  const { timestampMs, certificates } = facts.value
  const beginMs = timestampMs - FUTURE_SKEW_MS_DEFAULT
  const endMs = Math.min(...certificates.map(({ notAfterMs }) => notAfterMs))
  const finishedMs = record.receipt.finished_at
  if (finishedMs < beginMs || finishedMs > endMs)
    throw new ProofError(
      'wrong_time',
      'expected the completion to finish after the document was made and before its certificates ended',
    )
  return `the completion finished while the document was valid, until ${new Date(endMs).toISOString()}`
}

function checkBootConfiguration(
  { boot_configuration, record }: EvidenceBundle,
  document: AttestationDocument,
): Finding {
  const digest = digestBootConfiguration(boot_configuration)
  if (document.userData === null || !equalBytes(document.userData, digest))
    throw new ProofError(
      'wrong_configuration',
      "expected the document's user_data to be the digest of the boot configuration",
    )
  const { chainId, contract } = parseBootConfiguration(boot_configuration)
  if (chainId !== record.log.chain_id || contract !== record.log.contract)
    throw new ProofError(
      'wrong_domain',
      "expected the boot configuration to name the log's chain and contract",
    )
  return `SHA-256 ${encodeHex(digest)}`
}

function checkProvider({ boot_configuration, record }: EvidenceBundle): Finding {
  const { name, origin } = record.receipt.provider
  const { providers } = parseBootConfiguration(boot_configuration)
  if (!providers.some((entry) => entry.name === name && entry.origin === origin))
    throw new ProofError(
      'wrong_provider',
      "expected the boot configuration to have the receipt's provider at its origin",
    )
  return `${name} at ${origin}`
}

/**
 * Checks that the answer is whole, or that `accepted` lists the outcome. Any other outcome counts
 * as not checked, so the bundle is not verified. Does NOT prove who cut the answer.
 * `client_disconnected` means that the gateway closed its connection to the enclave, perhaps on
 * purpose.
 */
export function checkOutcome(
  { outcome }: Receipt,
  accepted: readonly Receipt['outcome'][] = [],
): Finding {
  if (outcome === 'complete') return 'complete: the answer has its end'
  const cut = `${outcome}: the answer was cut, ${CAUSES[outcome]}`
  return accepted.includes(outcome)
    ? `${cut}; accepted as such`
    : { notChecked: `${cut}; what is missing is not shown` }
}

const CAUSES: Readonly<Record<Exclude<Receipt['outcome'], 'complete'>, string>> = {
  client_disconnected: 'by its caller or by the gateway',
  upstream_error: 'by its provider, or on the way there',
}
