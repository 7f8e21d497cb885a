import { concatBytes } from '../../bytes.ts'
import { isSignatureInRange, P384 } from '../../nitro/ecdsa.ts'
import { refuseReport } from './snp-rules.ts'

/** Reports of all versions have this size. */
const SNP_REPORT_BYTES = 1184
/** The signature covers this many bytes from the start of the report. */
const SIGNED_BYTES = 0x2a0

const VERSION_MIN = 2
const VERSION_MAX = 5
/** Reports have CPUID from version 3 on, and mitigation vectors from version 4 on. */
const VERSION_CPUID = 3
const VERSION_MITIGATIONS = 4

/** The bits of a guest's POLICY. */
type GuestPolicy = {
  readonly abiMajor: number
  readonly abiMinor: number
  readonly smt: boolean
  /** A migration agent may move the guest to another machine. */
  readonly migration: boolean
  /** The host may read and change the guest's memory. */
  readonly debug: boolean
  readonly singleSocket: boolean
  readonly cxl: boolean
  readonly aes256Xts: boolean
  readonly raplOff: boolean
  readonly ciphertextHiding: boolean
  readonly pageSwapOff: boolean
}

/**
 * The bits of PLATFORM_INFO from bit 0 on. `aliasCheck` is ALIAS_CHECK_COMPLETE. Turin's firmware
 * sets `iommuWriteSafe`.
 */
export const PLATFORM_BITS = [
  'smt',
  'tsme',
  'ecc',
  'raplOff',
  'ciphertextHiding',
  'aliasCheck',
  'iommuWriteSafe',
  'trustedIo',
] as const

export type PlatformInfo = Readonly<Record<(typeof PLATFORM_BITS)[number], boolean>>

export type FirmwareVersion = {
  readonly major: number
  readonly minor: number
  readonly build: number
}

/** All fields are only claimed until chain and signature are verified. */
export type SnpReport = {
  readonly version: number
  readonly guestSvn: number
  readonly policy: GuestPolicy
  readonly familyId: Uint8Array
  readonly imageId: Uint8Array
  readonly vmpl: number
  readonly platform: PlatformInfo
  /** A VCEK is the key of one chip. A VLEK is the key of a cloud provider. */
  readonly signer: 'VCEK' | 'VLEK'
  readonly reportData: Uint8Array
  readonly measurement: Uint8Array
  readonly hostData: Uint8Array
  readonly idKeyDigest: Uint8Array
  readonly authorKeyDigest: Uint8Array
  readonly reportId: Uint8Array
  /** All ones or all zeros: no migration agent. */
  readonly migrationAgentReportId: Uint8Array
  /** TCB_VERSIONs of 8 bytes. The layout depends on the product. */
  readonly tcb: {
    readonly current: Uint8Array
    readonly reported: Uint8Array
    readonly committed: Uint8Array
    readonly launch: Uint8Array
  }
  /** Null before version 3. */
  readonly cpu: {
    readonly family: number
    readonly model: number
    readonly stepping: number
  } | null
  /** All zeros if the host masks it. */
  readonly chipId: Uint8Array
  readonly currentFirmware: FirmwareVersion
  readonly committedFirmware: FirmwareVersion
  /** 8 bytes each, little-endian. Null before version 4. */
  readonly mitigations: { readonly launch: Uint8Array; readonly current: Uint8Array } | null
  readonly signed: Uint8Array<ArrayBuffer>
  /** r || s, big-endian, 96 bytes. Both numbers are in the range of ECDSA. */
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Decodes an attacker-controlled report (rules 1 to 4; AMD 56860, ATTESTATION_REPORT). The bytes
 * are copied. Verifies nothing: anyone can write such a report. Throws ProviderEvidenceError.
 */
export function decodeSnpReport(bytes: Uint8Array): SnpReport {
  if (bytes.length !== SNP_REPORT_BYTES)
    throw refuseReport('report_size', `expected ${SNP_REPORT_BYTES} bytes, got ${bytes.length}`)
  const report = new Uint8Array(bytes)
  const view = new DataView(report.buffer)
  const take = (offset: number, length: number) => report.slice(offset, offset + length)
  const version = view.getUint32(0, true)
  if (version < VERSION_MIN || version > VERSION_MAX)
    throw refuseReport(
      'report_version',
      `expected version ${VERSION_MIN} to ${VERSION_MAX}, got ${version}`,
    )
  checkReserved(report, version)
  return {
    version,
    guestSvn: view.getUint32(0x04, true),
    policy: decodePolicy(view),
    familyId: take(0x10, 16),
    imageId: take(0x20, 16),
    vmpl: view.getUint32(0x30, true),
    platform: decodePlatform(view),
    signer: decodeSigner(view),
    reportData: take(0x50, 64),
    measurement: take(0x90, 48),
    hostData: take(0xc0, 32),
    idKeyDigest: take(0xe0, 48),
    authorKeyDigest: take(0x110, 48),
    reportId: take(0x140, 32),
    migrationAgentReportId: take(0x160, 32),
    tcb: {
      current: take(0x38, 8),
      reported: take(0x180, 8),
      committed: take(0x1e0, 8),
      launch: take(0x1f0, 8),
    },
    cpu:
      version < VERSION_CPUID
        ? null
        : {
            family: view.getUint8(0x188),
            model: view.getUint8(0x189),
            stepping: view.getUint8(0x18a),
          },
    chipId: take(0x1a0, 64),
    currentFirmware: decodeFirmware(view, 0x1e8),
    committedFirmware: decodeFirmware(view, 0x1ec),
    mitigations:
      version < VERSION_MITIGATIONS ? null : { launch: take(0x1f8, 8), current: take(0x200, 8) },
    signed: report.slice(0, SIGNED_BYTES),
    signature: decodeSignature(report),
  }
}

/** A range has the offset of its first byte, and the offset after its last byte. */
function checkReserved(report: Uint8Array, version: number): void {
  const ranges: readonly (readonly [number, number])[] = [
    [0x4c, 0x50],
    [version < VERSION_CPUID ? 0x188 : 0x18b, 0x1a0],
    [0x1eb, 0x1ec],
    [0x1ef, 0x1f0],
    [version < VERSION_MITIGATIONS ? 0x1f8 : 0x208, SIGNED_BYTES],
    [SIGNED_BYTES + 2 * SCALAR_FIELD_BYTES, SNP_REPORT_BYTES],
  ]
  for (const [start, end] of ranges)
    if (!isZero(report.subarray(start, end)))
      throw refuseReport('report_reserved', `expected zeros from byte ${start} to ${end - 1}`)
}

export function isZero(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0)
}

/** Bits above 25 must be 0. Bit 17 is reserved and must be 1. */
function decodePolicy(view: DataView): GuestPolicy {
  const bits = view.getUint32(0x08, true)
  const has = (bit: number) => ((bits >>> bit) & 1) === 1
  if (bits >>> 26 !== 0 || view.getUint32(0x0c, true) !== 0 || !has(17))
    throw refuseReport('guest_policy_reserved', 'expected policy bit 17 set, and none above 25')
  return {
    abiMinor: bits & 0xff,
    abiMajor: (bits >>> 8) & 0xff,
    smt: has(16),
    migration: has(18),
    debug: has(19),
    singleSocket: has(20),
    cxl: has(21),
    aes256Xts: has(22),
    raplOff: has(23),
    ciphertextHiding: has(24),
    pageSwapOff: has(25),
  }
}

function decodePlatform(view: DataView): PlatformInfo {
  const bits = view.getUint32(0x40, true)
  if (bits >>> PLATFORM_BITS.length !== 0 || view.getUint32(0x44, true) !== 0)
    throw refuseReport('platform_info_reserved', 'expected no platform bits above 7')
  const entries = PLATFORM_BITS.map((name, bit) => [name, ((bits >>> bit) & 1) === 1] as const)
  return Object.fromEntries(entries) as PlatformInfo
}

/** ECDSA over P-384 with SHA-384, the only algorithm (AMD 56860, SIGNATURE_ALGO). */
const ECDSA_P384_SHA384 = 1

function decodeSigner(view: DataView): SnpReport['signer'] {
  if (view.getUint32(0x34, true) !== ECDSA_P384_SHA384)
    throw refuseReport('signature_algorithm', 'expected ECDSA over P-384 with SHA-384')
  const flags = view.getUint32(0x48, true)
  if (flags >>> 5 !== 0)
    throw refuseReport('report_reserved', 'expected zeros above bit 4 of the key flags')
  const key = flags >>> 2
  if (key > 1) throw refuseReport('signing_key', 'expected a signature by a VCEK or a VLEK')
  return key === 0 ? 'VCEK' : 'VLEK'
}

function decodeFirmware(view: DataView, offset: number): FirmwareVersion {
  return {
    build: view.getUint8(offset),
    minor: view.getUint8(offset + 1),
    major: view.getUint8(offset + 2),
  }
}

/** r and s each have a field of this size: little-endian, then zeros. */
const SCALAR_FIELD_BYTES = 72

function decodeSignature(report: Uint8Array): Uint8Array<ArrayBuffer> {
  const scalars = [0, 1].map((index) => {
    const start = SIGNED_BYTES + index * SCALAR_FIELD_BYTES
    const field = report.slice(start, start + SCALAR_FIELD_BYTES)
    if (!isZero(field.subarray(P384.coordinateBytes)))
      throw refuseReport('signature_padding', 'expected r and s of 48 bytes, and zeros after them')
    return field.slice(0, P384.coordinateBytes).reverse()
  })
  const signature = new Uint8Array(concatBytes(...scalars))
  if (!isSignatureInRange(signature, P384))
    throw refuseReport('signature_out_of_range', 'expected r and s from 1 to n-1')
  return signature
}
