import { decodeHex, encodeHex, equalBytes } from '../../bytes.ts'
import type { Certificate, CertificateProfile } from '../../nitro/certificate.ts'
import { isBytes } from '../../nitro/document.ts'
import { type EcdsaKey, isSignatureInRange, P384, verifyEcdsa } from '../../nitro/ecdsa.ts'
import { PolicyError } from '../../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../../own-members.ts'
import { parsePemChain, verifyProviderChain } from '../provider-chain.ts'
import {
  createProviderChecks,
  type Established,
  established,
  type NotMade,
  type ProviderCheck,
} from '../provider-checks.ts'
import { firmwareIdsOf, isDiceExtension } from './firmware-id.ts'
import { GPU_CHECKS, type GpuCheckName, refuseGpu } from './gpu-rules.ts'
import { decodeSpdmEvidence, type SpdmEvidence } from './spdm-evidence.ts'

/** Evidence of one GPU or switch. All of it may be written by an attacker. */
export type GpuEvidence = {
  /** The SPDM request and its response. */
  readonly evidence: Uint8Array
  /** PEM, the device's certificate first, NVIDIA's root last. */
  readonly certificates: string
}

/** What the caller demands. */
export type GpuPolicy = {
  /** The nonce that the caller chose, 32 bytes. */
  readonly nonce: Uint8Array
  /** The trusted roots, by SHA-256 of their DER. Default [NVIDIA_ROOT_SHA256]. */
  readonly roots?: readonly Uint8Array[]
}

/** The facts that evidence proves: that a genuine device of NVIDIA signed these measurements. */
export type GpuFacts = Omit<SpdmEvidence, 'signed' | 'signature'> & {
  /** The leaf's name, e.g. `GH100 A01 GSP FMC LF`. */
  readonly device: string
  readonly verifiedAtMs: number
}

/** Judged evidence. `facts` is null if any check failed. */
export type GpuJudgement = {
  readonly facts: GpuFacts | null
  /** Each check of GPU_CHECKS once, in order. A check that was not made has not passed. */
  readonly checks: readonly ProviderCheck<GpuCheckName>[]
}

/**
 * SHA-256 of the DER of the NVIDIA Device Identity CA, the root of every device's certificate.
 * Source: NVIDIA/nvtrust, verifier_device_root.pem. To check it: hash the DER of that file.
 */
export const NVIDIA_ROOT_SHA256: Uint8Array = decodeHex(
  '102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48',
)

const GPU_CERTIFICATES: CertificateProfile = {
  curve: P384,
  isOpaque: isDiceExtension,
  authorities: 'authorities',
}

/**
 * Judges SPDM evidence of an NVIDIA device under `policy` at the time `at`, by rules 1 to 8 of
 * rules.md. It proves that a genuine device signed its measurements for this nonce, and no more:
 * without NVIDIA's reference values nothing says that the firmware is good; nothing here asks
 * whether the certificates were revoked; and nothing ties the device to a CPU, unless the nonce
 * does. Throws PolicyError for a call to fix.
 */
export async function judgeGpuEvidence(
  { evidence, certificates }: GpuEvidence,
  policy: GpuPolicy,
  at: Date,
): Promise<GpuJudgement> {
  const { nonce, roots } = resolvePolicy(policy)
  const atMs = at.getTime()
  if (Number.isNaN(atMs)) throw new PolicyError('expected a valid time as Date')
  const list = createProviderChecks<GpuCheckName>()
  const decoded = await list.make('evidence layout', () =>
    established(decodeSpdmEvidence(evidence)),
  )
  if (decoded !== null) await list.make('nonce', () => checkNonce(decoded, nonce))
  const chain =
    decoded === null
      ? null
      : await list.make('device chain', async () => {
          const ders = parsePemChain(certificates, 'certificates').toReversed()
          const trust = { roots, atMs, profile: GPU_CERTIFICATES }
          const verified = await verifyProviderChain(ders, trust)
          return established(verified, verified.leaf.subject.text)
        })
  if (decoded !== null && chain !== null) {
    await list.make('evidence signature', () => checkSignature(decoded, chain.leafKey))
    await list.make('firmware id', () => checkFirmwareId(decoded, chain.leaf))
  }
  const made = new Set(list.checks.map(({ name }) => name))
  for (const name of GPU_CHECKS)
    if (!made.has(name)) await list.make(name, () => ({ notChecked: NOT_MADE[name] }))
  const hasFailed = list.checks.some(({ outcome }) => outcome === 'failed')
  const facts = decoded && chain && !hasFailed ? factsOf(decoded, chain.leaf, atMs) : null
  return { facts, checks: list.checks }
}

const EARLIER = 'an earlier check failed'

/** Why a check was not made. The last two are never made. */
const NOT_MADE: Readonly<Record<GpuCheckName, string>> = {
  'evidence layout': EARLIER,
  nonce: EARLIER,
  'device chain': EARLIER,
  'evidence signature': EARLIER,
  'firmware id': EARLIER,
  'reference values': "without NVIDIA's reference values: a genuine device, its firmware unknown",
  revocation: 'NVIDIA answers that online alone (OCSP)',
}

function resolvePolicy(given: GpuPolicy): Required<GpuPolicy> {
  if (!hasOwnMembersAlone(given)) throw new PolicyError('expected the policy as an object')
  const { nonce, roots = [NVIDIA_ROOT_SHA256], ...rest } = ownMembers(given)
  if (Object.keys(rest).length > 0) throw new PolicyError('expected nonce and roots alone')
  const isHash = (value: unknown) => isBytes(value, { bytesMin: 32, bytesMax: 32 })
  if (!isHash(nonce)) throw new PolicyError('expected the nonce as Uint8Array of 32 bytes')
  if (!Array.isArray(roots) || !Array.from(roots).every(isHash))
    throw new PolicyError('expected roots as Uint8Arrays of 32 bytes')
  return { nonce, roots }
}

/** Rule 5. */
function checkNonce({ nonce }: SpdmEvidence, expected: Uint8Array): Established<true> {
  if (equalBytes(nonce, expected)) return established(true, encodeHex(nonce))
  throw refuseGpu('nonce_mismatch', 'expected evidence for the nonce that was asked for')
}

/** Rule 7. */
async function checkSignature(
  { signed: data, signature }: SpdmEvidence,
  key: EcdsaKey,
): Promise<Established<true>> {
  if (!isSignatureInRange(signature, P384))
    throw refuseGpu('signature_out_of_range', 'expected r and s from 1 to n-1')
  if (await verifyEcdsa({ key, signature, data })) return established(true)
  throw refuseGpu('signature_invalid', "expected a signature by the device's key")
}

/** Rule 8. Switches do not report the id of their firmware, though their certificates name one. */
function checkFirmwareId(
  { firmwareId }: SpdmEvidence,
  { opaque, subject }: Certificate,
): Established<true> | NotMade {
  const isSwitch = subject.commonName?.startsWith('LS_') === true
  if (firmwareId === null && isSwitch) return { notChecked: 'a switch reports no firmware id' }
  if (firmwareId === null)
    throw refuseGpu('firmware_id_missing', 'expected a firmware id in the evidence of a GPU')
  const isZero = firmwareId.every((byte) => byte === 0)
  if (isZero || !firmwareIdsOf(opaque).some((one) => equalBytes(one, firmwareId)))
    throw refuseGpu('firmware_id_mismatch', "expected the firmware id of the device's certificate")
  return established(true, encodeHex(firmwareId))
}

function factsOf(decoded: SpdmEvidence, leaf: Certificate, verifiedAtMs: number): GpuFacts {
  const { signed: _signed, signature: _signature, ...fields } = decoded
  return { ...fields, device: leaf.subject.commonName ?? leaf.subject.text, verifiedAtMs }
}
