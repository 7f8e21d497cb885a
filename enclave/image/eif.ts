import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { encodeHex } from '#attestation/bytes.ts'
import type { Digests } from '#attestation/eif/digests.ts'
import {
  EIF_CRC_OFFSET,
  EIF_HEADER_BYTES,
  EIF_SECTION_HEADER_BYTES,
  EIF_SECTIONS_MAX,
  type SectionKind,
} from '#attestation/eif/format.ts'
import { createRegisters, extendZero } from '#attestation/eif/measure-eif.ts'
import { parseSigningCertificate } from '#attestation/eif/signature.ts'
import type { ReleaseMeasurements } from '#attestation/release/release.ts'
import { type ImageSigner, signImage } from './image-signature.ts'

export type EifParts = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  /** JSON text. It is not part of the measurements. */
  readonly metadata: string
  /** The boot ramdisk first, then the ramdisks with the application. */
  readonly ramdisks: readonly Uint8Array[]
  /** A signature section (image-signature.ts), or null. */
  readonly signature: Uint8Array | null
}

/**
 * Encodes an enclave image of version 4 for x86-64: header, kernel, command line, metadata,
 * ramdisks and signature. Layout and defaults are those of aws-nitro-enclaves-image-format. The
 * same parts produce the same bytes. Throws RangeError for more ramdisks than fit into a header.
 */
export function encodeEif(parts: EifParts): Uint8Array<ArrayBuffer> {
  const sections = listSections(parts)
  if (sections.length > EIF_SECTIONS_MAX || parts.ramdisks.length === 0)
    throw new RangeError(`expected 1 ramdisk or more and at most ${EIF_SECTIONS_MAX} sections`)
  const header = Buffer.alloc(EIF_HEADER_BYTES)
  header.write('.eif', 'latin1')
  header.writeUInt16BE(EIF_VERSION, 4)
  header.writeBigUInt64BE(DEFAULT_MEMORY_BYTES, 8)
  header.writeBigUInt64BE(DEFAULT_CPUS, 16)
  header.writeUInt16BE(sections.length, 26)
  let offset = EIF_HEADER_BYTES
  for (const [index, { data }] of sections.entries()) {
    header.writeBigUInt64BE(BigInt(offset), 28 + 8 * index)
    header.writeBigUInt64BE(BigInt(data.length), 28 + 8 * EIF_SECTIONS_MAX + 8 * index)
    offset += EIF_SECTION_HEADER_BYTES + data.length
  }
  const body = Buffer.concat(
    sections.flatMap(({ kind, data }) => [encodeSectionHeader(kind, data), data]),
  )
  header.writeUInt32BE(crc32(body, crc32(header.subarray(0, EIF_CRC_OFFSET))), EIF_CRC_OFFSET)
  return new Uint8Array(Buffer.concat([header, body]))
}

/** Returns PCR0, 1 and 2 of the image with these parts, 48 bytes each. */
export function measureParts(parts: Pick<EifParts, 'kernel' | 'cmdline' | 'ramdisks'>) {
  const [boot, ...applications] = parts.ramdisks
  const registers = createRegisters(IMAGE_DIGESTS)
  registers.addBoot(parts.kernel)
  registers.addBoot(Buffer.from(parts.cmdline, 'utf8'))
  if (boot !== undefined) registers.addBoot(boot)
  for (const application of applications) registers.addApplication(application)
  return registers.finish()
}

export const IMAGE_DIGESTS: Digests = { sha384: () => createHash('sha384'), crc32 }

const EIF_VERSION = 4
/** The defaults of AWS's builder. When the host starts an enclave, it sets other values. */
const DEFAULT_MEMORY_BYTES = 2n ** 30n
const DEFAULT_CPUS = 2n

/** EifSectionType of aws-nitro-enclaves-image-format. */
const TYPE_OF_KIND: Readonly<Record<SectionKind, number>> = {
  kernel: 1,
  cmdline: 2,
  ramdisk: 3,
  signature: 4,
  metadata: 5,
}

type PlannedSection = { readonly kind: SectionKind; readonly data: Uint8Array }

function listSections(parts: EifParts): readonly PlannedSection[] {
  const { kernel, cmdline, metadata, ramdisks, signature } = parts
  return [
    { kind: 'kernel', data: kernel },
    { kind: 'cmdline', data: Buffer.from(cmdline, 'utf8') },
    { kind: 'metadata', data: Buffer.from(metadata, 'utf8') },
    ...ramdisks.map((data) => ({ kind: 'ramdisk' as const, data })),
    ...(signature === null ? [] : [{ kind: 'signature' as const, data: signature }]),
  ]
}

function encodeSectionHeader(kind: SectionKind, data: Uint8Array): Uint8Array {
  const header = Buffer.alloc(EIF_SECTION_HEADER_BYTES)
  header.writeUInt16BE(TYPE_OF_KIND[kind], 0)
  header.writeBigUInt64BE(BigInt(data.length), 4)
  return header
}

type ImageContents = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  readonly kernelVersion: string
  readonly bootRamdisk: Uint8Array
  readonly applicationRamdisk: Uint8Array
  readonly version: string
  readonly commit: string
  readonly signer: ImageSigner | null
}

type SealedImage = { readonly eif: Uint8Array; readonly measurements: ReleaseMeasurements }

/** Returns the image file with its measurements, signed if `signer` is not null. */
export function sealImage(contents: ImageContents): SealedImage {
  const { kernel, cmdline, bootRamdisk, applicationRamdisk, signer } = contents
  const parts = { kernel, cmdline, ramdisks: [bootRamdisk, applicationRamdisk] }
  const { pcr0, pcr1, pcr2 } = measureParts(parts)
  const signature = signer === null ? null : signImage(signer, pcr0)
  const measurements = { PCR0: encodeHex(pcr0), PCR1: encodeHex(pcr1), PCR2: encodeHex(pcr2) }
  return {
    eif: encodeEif({ ...parts, metadata: writeMetadata(contents), signature }),
    measurements: signer === null ? measurements : { ...measurements, PCR8: measureSigner(signer) },
  }
}

function measureSigner({ certificate }: ImageSigner): string {
  const digest = createHash('sha384').update(parseSigningCertificate(certificate).der).digest()
  return encodeHex(extendZero(digest, IMAGE_DIGESTS))
}

/**
 * Returns the metadata section like AWS's builder, but without the time, so that a rebuilt image
 * has the same bytes. The section is not measured. `measurements.json` states the important facts.
 */
function writeMetadata(image: {
  readonly version: string
  readonly commit: string
  readonly kernelVersion: string
}): string {
  return JSON.stringify({
    ImageName: 'affidavit-enclave',
    ImageVersion: image.version,
    BuildMetadata: {
      BuildTime: '1970-01-01T00:00:00+00:00',
      BuildTool: 'affidavit npm run image',
      BuildToolVersion: image.version,
      OperatingSystem: 'Debian GNU/Linux',
      KernelVersion: image.kernelVersion,
    },
    DockerInfo: {},
    CustomMetadata: { GitCommit: image.commit },
  })
}
