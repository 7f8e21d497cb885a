import { decodeHex, encodeHex, equalBytes } from '../../bytes.ts'
import type { Certificate, CertificateProfile } from '../../nitro/certificate.ts'
import { type EcdsaKey, isSignatureInRange, P384, verifyEcdsa } from '../../nitro/ecdsa.ts'
import { demand, isBytesOf, isListOf, judgedAt, optionsOf } from '../policy-options.ts'
import { parsePemChain, verifyProviderChain } from '../provider-chain.ts'
import {
  blockedBy,
  createProviderChecks,
  type Established,
  established,
  type NotMade,
  type ProviderCheck,
  waived,
} from '../provider-checks.ts'
import { firmwareIdsOf, isDiceExtension } from './firmware-id.ts'
import { GPU_CHECKS, type GpuCheckName, refuseGpu } from './gpu-rules.ts'
import { decodeSpdmEvidence, type SpdmEvidence } from './spdm-evidence.ts'

/** Evidence of one GPU or switch. Attacker-controlled. */
export type GpuEvidence = {
  /** SPDM request and response. */
  readonly evidence: Uint8Array
  /** PEM, the device's certificate first, NVIDIA's root last. */
  readonly certificates: string
}

export type GpuPolicy = {
  /** The nonce that the caller chose, 32 bytes. */
  readonly nonce: Uint8Array
  /** The trusted roots, by SHA-256 of their DER. Default [NVIDIA_ROOT_SHA256]. */
  readonly roots?: readonly Uint8Array[]
}

/** A genuine device of NVIDIA signed these measurements. */
type GpuFacts = Omit<SpdmEvidence, 'signed' | 'signature'> & {
  /** The leaf's name, such as `GH100 A01 GSP FMC LF`. */
  readonly device: string
  /** True for a switch, false for a GPU. */
  readonly isSwitch: boolean
  /** The leaf's key, a point. Each device has its own. A certificate can have other bytes. */
  readonly deviceKey: Uint8Array
  /** The earliest end of validity of the certificates, Unix milliseconds. */
  readonly endsAtMs: number
}

/** `facts` is null unless chain and signature are valid. */
type GpuJudgement = {
  readonly facts: GpuFacts | null
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
 * Judges attacker-controlled SPDM evidence of an NVIDIA device under `policy` at the time `at`, by
 * rules 1 to 8 of rules.md. Accept it only if `requireChecks(checks)` returns.
 *
 * It proves that a genuine device signed its measurements for this nonce. It does NOT prove that
 * the firmware is good (this needs NVIDIA's reference values) or that the device was not revoked
 * (only NVIDIA's online service reports this). Only the nonce can tie the device to a CPU. Throws
 * only PolicyError, for a fault in the call.
 *
 * @example
 * const { facts, checks } = await verifyGpuEvidence({ evidence, certificates }, { nonce }, at)
 * requireChecks(checks)
 * console.log(facts?.device) // GH100 A01 GSP FMC LF
 */
export async function verifyGpuEvidence(
  { evidence, certificates }: GpuEvidence,
  policy: GpuPolicy,
  at: Date,
): Promise<GpuJudgement> {
  const { nonce, roots } = resolvePolicy(policy)
  const atMs = judgedAt(at)
  const isWhole = evidence instanceof Uint8Array && typeof certificates === 'string'
  demand(isWhole, 'evidence as Uint8Array and certificates as text')
  const { make, list } = createProviderChecks(GPU_CHECKS)
  const decoded = await make('evidence layout', () => established(decodeSpdmEvidence(evidence)))
  await make('nonce', () => (decoded ? checkNonce(decoded, nonce) : blockedBy('evidence layout')))
  const chain = await make('device chain', async () => {
    const ders = parsePemChain(certificates, 'certificates').toReversed()
    const verified = await verifyProviderChain(ders, { roots, atMs, profile: GPU_CERTIFICATES })
    return established(verified, verified.leaf.subject.text)
  })
  const signed = await make('evidence signature', async () => {
    if (decoded === null) return blockedBy('evidence layout')
    if (chain === null) return blockedBy('device chain')
    await verifySignature(decoded, chain.leafKey)
    return established({ ...decoded, chain })
  })
  await make('firmware id', () =>
    signed ? checkFirmwareId(signed, signed.chain.leaf) : blockedBy('evidence signature'),
  )
  await make('reference values', () =>
    waived("without NVIDIA's reference values: a genuine device, its firmware unknown"),
  )
  await make('device revocation', () => waived('NVIDIA answers that online alone (OCSP)'))
  return { facts: signed === null ? null : factsOf(signed), checks: list() }
}

type DeviceChain = Awaited<ReturnType<typeof verifyProviderChain>>

function resolvePolicy(given: GpuPolicy): Required<GpuPolicy> {
  const { nonce, roots = [NVIDIA_ROOT_SHA256] } = optionsOf(given, OPTIONS, 'the policy of a GPU')
  demand(isBytesOf(nonce, 32), 'a nonce of 32 bytes')
  demand(
    isListOf(roots, (root) => isBytesOf(root, 32)),
    'roots of 32 bytes each',
  )
  return { nonce, roots }
}

const OPTIONS: Readonly<Record<keyof GpuPolicy, true>> = { nonce: true, roots: true }

/** Rule 5 of rules.md. */
function checkNonce({ nonce }: SpdmEvidence, expected: Uint8Array): Established<true> {
  if (equalBytes(nonce, expected)) return established(true, encodeHex(nonce))
  throw refuseGpu('nonce_mismatch', 'expected evidence for the nonce that was asked for')
}

/** Rule 7 of rules.md. */
async function verifySignature(
  { signed: data, signature }: SpdmEvidence,
  key: EcdsaKey,
): Promise<void> {
  if (!isSignatureInRange(signature, P384))
    throw refuseGpu('signature_out_of_range', 'expected r and s from 1 to n-1')
  if (!(await verifyEcdsa({ key, signature, data })))
    throw refuseGpu('signature_invalid', "expected a signature by the device's key")
}

/** Rule 8. Waived for a switch, whose evidence has no firmware id. */
function checkFirmwareId(
  { firmwareId }: SpdmEvidence,
  { opaque, subject }: Certificate,
): Established<true> | NotMade {
  if (firmwareId === null && isOfSwitch(subject)) return waived('a switch reports no firmware id')
  if (firmwareId === null)
    throw refuseGpu('firmware_id_missing', 'expected a firmware id in the evidence of a GPU')
  const isZero = firmwareId.every((byte) => byte === 0)
  if (isZero || !firmwareIdsOf(opaque).some((one) => equalBytes(one, firmwareId)))
    throw refuseGpu('firmware_id_mismatch', "expected the firmware id of the device's certificate")
  return established(true, encodeHex(firmwareId))
}

function isOfSwitch({ commonName }: Certificate['subject']): boolean {
  return commonName?.startsWith('LS_') === true
}

function factsOf({
  chain: { leaf, certificates },
  ...decoded
}: SpdmEvidence & { readonly chain: DeviceChain }): GpuFacts {
  const { signed: _signed, signature: _signature, ...fields } = decoded
  return {
    ...fields,
    device: leaf.subject.commonName ?? leaf.subject.text,
    isSwitch: isOfSwitch(leaf.subject),
    deviceKey: leaf.point,
    endsAtMs: Math.min(...certificates.map(({ notAfterMs }) => notAfterMs)),
  }
}
