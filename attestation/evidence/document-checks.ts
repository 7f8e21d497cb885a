import { addressOf } from '../account.ts'
import { encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { checkMeasurements, type MatchedCode } from '../nitro/checks.ts'
import type { AttestationDocument } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { type AttestationPolicy, PolicyError } from '../nitro/policy.ts'
import { type AttestationVerifier, verifyAttestation } from '../nitro/verify-attestation.ts'
import { nameRelease } from '../release/accepted-releases.ts'
import { configurationOf, type Release } from '../release/release.ts'
import { type Attempt, attempt, type Finding, need, reasonOf } from './finding.ts'
import { type BundlePolicy, expectsCode } from './policy.ts'

/**
 * The facts of a document that is genuine at its own time (historical mode), or why it is not. Which code it is of
 * has a check of its own. Rejects with PolicyError when the policy makes no sense.
 */
export async function verifyDocument(
  bytes: Attempt<Uint8Array>,
  { roots, revoked, allowDebug }: BundlePolicy,
  attestations: AttestationVerifier = { verify: verifyAttestation },
): Promise<Attempt<AttestationFacts>> {
  const policy: AttestationPolicy = {
    // Which code it is has a check of its own: here, whether the document is one at all.
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

/** Historical mode takes the document's own time. */
const UNUSED_TIME = new Date(0)

/** Which enclave made the document, and when, in words. */
export function describeDocument({ moduleId, timestampMs, isDebugMode }: AttestationFacts): Finding {
  const debug = isDebugMode ? '; IN DEBUG MODE, in which the host can read the key' : ''
  return `${moduleId} at ${new Date(timestampMs).toISOString()}${debug}`
}

/**
 * Checks that the document is of code that the caller expects. Not checked without `facts` of it: measurements in a document
 * that is not genuine are whatever its writer liked. Throws AttestationError.
 */
export function checkExpectedMeasurements(
  document: Attempt<AttestationDocument>,
  { facts, policy }: { readonly facts: Attempt<AttestationFacts>; readonly policy: BundlePolicy },
): Finding {
  if (!expectsCode(policy)) return { notChecked: 'no expected measurements were given' }
  if ('fault' in facts) return { notChecked: `the document is not valid: ${reasonOf(facts.fault)}` }
  const { measurements = [], releases = [] } = policy
  const matched = checkMeasurements(need(document), { measurements, releases })
  if (matched.release !== null) return nameRelease(matched.release)
  return `all ${measurements[matched.matchedSet ?? 0]?.size ?? 0} measurements of an expected set`
}

/** Which set or release of the policy the document shows; null when none is expected. Throws AttestationError. */
export function findExpectedCode(document: AttestationDocument, policy: BundlePolicy): MatchedCode | null {
  const { measurements = [], releases = [] } = policy
  return expectsCode(policy) ? checkMeasurements(document, { measurements, releases }) : null
}

/**
 * Checks that the digest of a boot configuration is one that the caller expects. When the document
 * is of an expected release that names a configuration, it must be that one too. What the gateway
 * under test serves is no expectation: it always agrees with itself. Throws ProofError.
 */
export function checkExpectedConfiguration(
  digest: Uint8Array,
  { document, policy }: { readonly document: Attempt<AttestationDocument>; readonly policy: BundlePolicy },
): Finding {
  const { configurations = [] } = policy
  const release = findRelease(document, policy)
  const signed = release && configurationOf(release)
  if (configurations.length === 0 && signed === null)
    return {
      notChecked: `no expected configurations were given, by a release or otherwise; this one is ${encodeHex(digest)}`,
    }
  if (signed !== null && !equalBytes(signed, digest))
    throw new ProofError(
      'unexpected_configuration',
      `expected the configuration of the release, ${encodeHex(signed)}, got ${encodeHex(digest)}`,
    )
  if (configurations.length > 0 && !configurations.some((expected) => equalBytes(expected, digest)))
    throw new ProofError(
      'unexpected_configuration',
      `expected another configuration than ${encodeHex(digest)}`,
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
 * Checks that `createdAt` is the second of the document's timestamp. Throws ProofError
 * `wrong_time`.
 */
export function checkCreatedAt({ timestampMs }: AttestationDocument, createdAt: number): Finding {
  const second = Math.floor(timestampMs / 1000)
  if (createdAt !== second)
    throw new ProofError('wrong_time', `expected created_at to be the second of the document, ${second}`)
  return `Unix second ${second}`
}

/**
 * The expected release that a document is of. Null when there is none: the check of measurements
 * reports that.
 */
function findRelease(document: Attempt<AttestationDocument>, policy: BundlePolicy): Release | null {
  const found = attempt(() => findExpectedCode(need(document), policy)?.release ?? null)
  return 'fault' in found ? null : found.value
}
