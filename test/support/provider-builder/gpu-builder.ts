import { createHash, sign } from 'node:crypto'
import type { GpuEvidence, GpuPolicy } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  certificateParts,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  type KeyPair,
  keyUsage,
  nameOf,
  publicKeyInfo,
  toPem,
} from '../nitro-builder/certificate-builder.ts'
import {
  encodeDer,
  integer,
  objectIdentifier,
  octetString,
  sequence,
} from '../nitro-builder/der-encoder.ts'

/** When the evidence of these tests is judged. Every certificate is valid at that time. */
export const GPU_AT = new Date('2026-03-04T05:06:07.000Z')
export const GPU_NONCE = new Uint8Array(32).fill(0x6e)
export const FIRMWARE_ID = new Uint8Array(48).fill(0xf1)

/** Changes to evidence that is otherwise accepted. */
export type GpuChange = {
  readonly blocks?: readonly Uint8Array[]
  readonly opaque?: readonly Uint8Array[]
  /** Changes request and response before they are signed. */
  readonly evidence?: (bytes: Buffer) => Uint8Array
  /** Changes the whole after it was signed. */
  readonly signed?: (bytes: Buffer) => Uint8Array
  /** The key of the leaf. */
  readonly key?: KeyPair
  /** The name of the leaf. */
  readonly device?: string
  /** The DICE extension of the leaf; null leaves the extension out. */
  readonly dice?: Uint8Array | null
  /** Changes to certificates by their place: 0 is the root, 4 the leaf. */
  readonly certificates?: Readonly<Record<number, Partial<CertificateParts>>>
  /** Changes the chain, leaf first, before it is written as PEM. */
  readonly chain?: (ders: readonly Uint8Array[]) => readonly Uint8Array[]
  /** Changes the PEM. */
  readonly pem?: (pem: string) => string
}

/** Evidence that every check accepts, with changes, and the policy that trusts its root. */
export function buildGpu(change: GpuChange = {}): {
  readonly evidence: GpuEvidence
  readonly policy: GpuPolicy
} {
  const ders = LEVELS.map((_, level) => buildLevel(level, change))
  const leafFirst = change.chain?.(ders.toReversed()) ?? ders.toReversed()
  const unsigned = writeEvidence(change)
  const changed = Buffer.from(change.evidence?.(unsigned) ?? unsigned)
  const key = { key: (change.key ?? keyAt(4)).privateKey, dsaEncoding: 'ieee-p1363' } as const
  const whole = Buffer.concat([changed, sign('sha384', changed, key)])
  return {
    evidence: {
      evidence: new Uint8Array(change.signed?.(whole) ?? whole),
      certificates: change.pem?.(toPem(...leafFirst)) ?? toPem(...leafFirst),
    },
    policy: { nonce: GPU_NONCE, roots: [hashOf(ders[0] ?? new Uint8Array())] },
  }
}

/** A block of a measurement: DMTF's form, with a SHA-384 digest. */
export function measurementBlock(index: number, digest = Buffer.alloc(48, index)): Buffer {
  return Buffer.concat([
    Buffer.of(index, 1, 51, 0, 1, digest.length & 0xff, digest.length >> 8),
    digest,
  ])
}

export function opaqueField(type: number, data: Uint8Array): Buffer {
  const head = Buffer.alloc(4)
  head.writeUInt16LE(type, 0)
  head.writeUInt16LE(data.length, 2)
  return Buffer.concat([head, data])
}

export const GPU_BLOCKS = [1, 2, 3].map((index) => measurementBlock(index))
export const GPU_OPAQUE = [
  opaqueField(6, Buffer.of(0, 0xa5, 0, 0x96)),
  opaqueField(3, Buffer.from('590.12\0')),
  opaqueField(20, FIRMWARE_ID),
  opaqueField(36, Buffer.of(2, 0)),
]

function writeEvidence({ blocks = GPU_BLOCKS, opaque = GPU_OPAQUE }: GpuChange): Buffer {
  const record = Buffer.concat(blocks)
  const fields = Buffer.concat(opaque)
  const lengths = Buffer.alloc(6)
  lengths.writeUIntLE(record.length, 0, 3)
  lengths.writeUInt16LE(fields.length, 4)
  return Buffer.concat([
    Buffer.from('11e001ff', 'hex'),
    GPU_NONCE,
    Buffer.of(0),
    Buffer.from('11600000', 'hex'),
    Buffer.of(blocks.length),
    lengths.subarray(0, 3),
    record,
    Buffer.alloc(32, 0xdd),
    lengths.subarray(4),
    fields,
  ])
}

const SHA384_FIRMWARE = (digest: Uint8Array) =>
  sequence(objectIdentifier('2.16.840.1.101.3.4.2.2'), octetString(digest))

/** The DICE extension of a Hopper. */
export function compositeId(digest: Uint8Array): Uint8Array {
  const value = sequence(integer(1), publicKeyInfo(keyAt(4)), SHA384_FIRMWARE(digest))
  return extension('2.23.133.5.4.1', { critical: false, value })
}

/** The DICE extension of a Blackwell, with two firmware ids. */
export function tcbInfo(...digests: readonly Uint8Array[]): Uint8Array {
  const value = sequence(
    encodeDer(0x80, Buffer.from('NVIDIA')),
    encodeDer(0xa6, ...digests.map(SHA384_FIRMWARE)),
  )
  return extension('2.23.133.5.4.1.1', { critical: false, value })
}

const LEVELS = [0, 1, 2, 3, 4].map((level) => ({
  name: level === 4 ? 'GH100 A01 GSP FMC LF' : `development device authority ${level}`,
  key: generateKey(),
}))

/** The key of the certificate at a level; the leaf's key signs evidence. */
export function keyAt(level: number) {
  return (LEVELS[level] ?? { key: generateKey() }).key
}

const { digitalSignature, keyCertSign } = KEY_USAGE_BITS
const YEAR_MS = 365 * 86_400_000

/** The parts of one certificate as NVIDIA makes them: without an end. */
export function gpuCertificateParts(level: number, change: GpuChange = {}): CertificateParts {
  const { device = LEVELS[4]?.name ?? '', dice = compositeId(FIRMWARE_ID) } = change
  const parent = Math.max(level - 1, 0)
  return certificateParts({
    serial: 0x4e00 + level,
    issuer: { name: nameOf(LEVELS[parent]?.name ?? ''), key: keyAt(parent) },
    life: { from: new Date(GPU_AT.getTime() - YEAR_MS), to: new Date('9999-12-31T23:59:59Z') },
    subject: nameOf(level === 4 ? device : (LEVELS[level]?.name ?? '')),
    key: level === 4 ? (change.key ?? keyAt(4)) : keyAt(level),
    extensions:
      level === 4
        ? [keyUsage(digitalSignature), ...(dice ? [dice] : [])]
        : [authorityConstraints(null), keyUsage(keyCertSign)],
  })
}

function buildLevel(level: number, change: GpuChange): Uint8Array {
  const parts = gpuCertificateParts(level, change)
  return buildCertificate({ ...parts, ...change.certificates?.[level] })
}

function hashOf(der: Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(der).digest())
}
