import { ownMembers } from '../own-members.ts'
import { CHAINS_MAX_DEFAULT, type ChainCache, createChainCache, verifyChain } from './chain.ts'
import { checkDebugMode, checkFreshness, checkMeasurements, checkNonce } from './checks.ts'
import { decodeCose, verifyCoseSignature } from './cose.ts'
import { parseDocument } from './document.ts'
import { type AttestationFacts, gatherFacts } from './facts.ts'
import { type AttestationPolicy, PolicyError, resolvePolicy } from './policy.ts'

/**
 * Verifies documents and caches the verified chains. The next document from an enclave then needs
 * only one signature verification.
 */
export type AttestationVerifier = {
  /** See verifyAttestation. */
  verify(bytes: Uint8Array, policy: AttestationPolicy, at: Date): Promise<AttestationFacts>
}

/**
 * Verifies the AWS Nitro attestation document in attacker-controlled `bytes` (COSE_Sign1, binary)
 * under `policy` at the time `at`, and returns its facts. In historical mode, `at` is not used. All
 * rules of rules.md are checked, in the order decode, parse, chain, signature, policy.
 *
 * It does not prove that the code is good, only which measurements it has; nor that the document is
 * new, unless a nonce is required; nor that the caller talks to that enclave, unless the connection
 * uses the key in `publicKey`; nor that no certificate was revoked. Throws AttestationError if the
 * document is refused, PolicyError if policy or time is invalid.
 *
 * @example
 * const policy = { measurements, roots, mode: 'historical' }
 * const facts = await verifyAttestation(document, policy, new Date())
 * console.log(facts.matchedSet) // 0
 */
export async function verifyAttestation(
  bytes: Uint8Array,
  policy: AttestationPolicy,
  at: Date,
): Promise<AttestationFacts> {
  return await verify(bytes, policy, at, null)
}

/**
 * Creates a verifier that caches up to `chainsMax` verified chains. The cache compares the exact
 * bytes of the certificates. Trusted root, validity and revocation are checked at each use, as for
 * a new chain.
 *
 * @example
 * const verifier = createAttestationVerifier()
 * const policy = { measurements: 'any', roots, mode: 'historical' }
 * const facts = await verifier.verify(document, policy, new Date())
 * console.log(facts.publicKey.length) // 65
 */
export function createAttestationVerifier(
  options: { readonly chainsMax?: number } = {},
): AttestationVerifier {
  const { chainsMax = CHAINS_MAX_DEFAULT } = ownMembers(options)
  const cache = createChainCache(chainsMax)
  return { verify: async (bytes, policy, at) => await verify(bytes, policy, at, cache) }
}

async function verify(
  bytes: Uint8Array,
  demanded: AttestationPolicy,
  at: Date,
  cache: ChainCache | null,
): Promise<AttestationFacts> {
  const policy = resolvePolicy(demanded)
  const callerMs = timeOf(at)
  if (!(bytes instanceof Uint8Array)) throw new PolicyError('expected the document as Uint8Array')
  const cose = decodeCose(bytes)
  const document = parseDocument(cose.payload)
  const atMs = policy.mode === 'historical' ? document.timestampMs : callerMs
  const { leafKey, ...chain } = await verifyChain(document, { ...policy, atMs, cache })
  await verifyCoseSignature(cose, leafKey)
  checkFreshness(document, { policy, leaf: chain.leaf, atMs })
  checkNonce(document, policy.nonce)
  checkDebugMode(document, policy.allowDebug)
  const matched = checkMeasurements(document, policy)
  return gatherFacts({ document, ...chain, policy, matched, verifiedAtMs: atMs })
}

function timeOf(at: Date): number {
  const atMs = at instanceof Date ? at.getTime() : Number.NaN
  if (Number.isNaN(atMs)) throw new PolicyError('expected a valid time as Date')
  return atMs
}
