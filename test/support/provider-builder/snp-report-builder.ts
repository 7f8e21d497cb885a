import { sign } from 'node:crypto'
import type { SnpPolicy } from '#attestation/providers/snp/policy.ts'
import { type SnpProduct, TCB_LAYOUTS, type TcbVersion } from '#attestation/providers/snp/tcb.ts'
import type { SnpEvidence } from '#attestation/providers/snp/verify-snp-report.ts'
import type { CertificateParts } from '../nitro-builder/certificate-builder.ts'
import {
  amdExtensions,
  amdValues,
  buildSnpChain,
  type SnpChainParts,
  type SnpSigner,
  vekKey,
} from './snp-pki.ts'

/** Changes to a report that is otherwise accepted. */
export type SnpChange = {
  readonly product?: SnpProduct
  readonly version?: number
  readonly signer?: SnpSigner
  /** Changes the report before it is signed. */
  readonly report?: (report: Buffer) => void
  /** Changes the report after it was signed. */
  readonly signed?: (report: Buffer) => void
  /** Changes the values of AMD's extensions in the certificate. */
  readonly claims?: (values: Map<string, Uint8Array>) => void
  readonly ark?: Partial<CertificateParts>
  readonly ask?: Partial<CertificateParts>
  readonly vek?: Partial<CertificateParts>
}

export const SNP_MEASUREMENT = new Uint8Array(48).fill(0x4d)
export const SNP_REPORT_DATA = new Uint8Array(64).fill(0x52)
export const SNP_HOST_DATA = new Uint8Array(32).fill(0x48)

/** TCBs with a part above 127, which takes two bytes in the certificate. */
export const SNP_TCBS: Readonly<Record<SnpProduct, TcbVersion>> = {
  Milan: { bootloader: 4, tee: 0, snp: 23, microcode: 213 },
  Genoa: { bootloader: 10, tee: 0, snp: 23, microcode: 84 },
  Turin: { fmc: 1, bootloader: 2, tee: 1, snp: 4, microcode: 77 },
}

const CPUS: Readonly<Record<SnpProduct, readonly [number, number, number]>> = {
  Milan: [0x19, 0x01, 1],
  Genoa: [0x19, 0x11, 1],
  Turin: [0x1a, 0x02, 1],
}

const TCB_OFFSETS = [0x38, 0x180, 0x1e0, 0x1f0]
const SIGNED_BYTES = 0x2a0

/** Evidence that every check accepts, with changes, and the policy that trusts its root. */
export function buildSnp(change: SnpChange = {}): {
  readonly evidence: SnpEvidence
  readonly policy: SnpPolicy
} {
  const { product = 'Milan', signer = 'VCEK', version = 3 } = change
  const chipId = Buffer.alloc(64, product === 'Turin' ? 0 : 0xc1)
  if (product === 'Turin') chipId.fill(0xc1, 0, 8)
  const hardwareId = Uint8Array.from(product === 'Turin' ? chipId.subarray(0, 8) : chipId)
  const parts: SnpChainParts = { product, signer, tcb: SNP_TCBS[product], hardwareId }
  const { arkSha256, ...chain } = buildSnpChain(parts, changeOfChain(parts, change))
  const report = writeReport({ product, signer, version, chipId })
  change.report?.(report)
  signReport(report)
  change.signed?.(report)
  return {
    evidence: { ...chain, report: new Uint8Array(report), revocationList: null },
    policy: {
      measurements: [SNP_MEASUREMENT],
      reportData: SNP_REPORT_DATA,
      hostData: [SNP_HOST_DATA],
      floors: { [product]: SNP_TCBS[product] },
      roots: { [product]: [arkSha256] },
      needsRevocationList: false,
    },
  }
}

function changeOfChain(parts: SnpChainParts, { claims, ark, ask, vek }: SnpChange) {
  const values = amdValues(parts)
  claims?.(values)
  const changed = claims ? { ...vek, extensions: amdExtensions(values) } : vek
  return { ...(ark && { ark }), ...(ask && { ask }), ...(changed && { vek: changed }) }
}

function writeReport({
  product,
  signer,
  version,
  chipId,
}: Required<Pick<SnpChange, 'product' | 'signer' | 'version'>> & { chipId: Buffer }): Buffer {
  const report = Buffer.alloc(1184)
  report.writeUInt32LE(version, 0)
  // SMT, and the bit that is always set.
  report.writeUInt32LE(0x30000, 0x08)
  report.writeUInt32LE(1, 0x34)
  report.writeUInt32LE(0x25, 0x40)
  report.writeUInt32LE(signer === 'VCEK' ? 0 : 1 << 2, 0x48)
  report.set(SNP_REPORT_DATA, 0x50)
  report.set(SNP_MEASUREMENT, 0x90)
  report.set(SNP_HOST_DATA, 0xc0)
  report.fill(0xff, 0x160, 0x180)
  if (version >= 3) report.set(CPUS[product], 0x188)
  report.set(chipId, 0x1a0)
  report.set([29, 55, 1, 0, 29, 55, 1, 0], 0x1e8)
  for (const offset of TCB_OFFSETS)
    for (const [part, index] of Object.entries(TCB_LAYOUTS[product]))
      report[offset + index] = SNP_TCBS[product][part as keyof TcbVersion] ?? 0
  return report
}

/** Writes the signature of the development VEK: r and s little-endian, 72 bytes each. */
export function signReport(report: Buffer): void {
  const key = { key: vekKey.privateKey, dsaEncoding: 'ieee-p1363' } as const
  const signature = sign('sha384', report.subarray(0, SIGNED_BYTES), key)
  report.fill(0, SIGNED_BYTES)
  report.set(signature.subarray(0, 48).reverse(), SIGNED_BYTES)
  report.set(signature.subarray(48).reverse(), SIGNED_BYTES + 72)
}
