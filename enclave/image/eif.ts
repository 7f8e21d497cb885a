import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import {
  EIF_CRC_OFFSET,
  EIF_HEADER_BYTES,
  EIF_SECTION_HEADER_BYTES,
  EIF_SECTIONS_MAX,
} from '../../attestation/eif/header.ts'
import { createRegisters } from '../../attestation/eif/registers.ts'
import type { SectionKind } from '../../attestation/eif/section.ts'

/** What an enclave image holds. */
export type EifParts = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  /** JSON; no measurement covers it. */
  readonly metadata: string
  /** The first boots, the others are the application. */
  readonly ramdisks: readonly Uint8Array[]
  /** A signature section (image-signature.ts), or null. */
  readonly signature: Uint8Array | null
}

/**
 * Gives the bytes of an enclave image of version 4 for x86-64: header, then kernel, command line, metadata, ramdisks and
 * signature, as aws-nitro-enclaves-image-format lays them out, with its default memory and processors. The same
 * parts give the same bytes. Throws RangeError for more ramdisks than a header has room for.
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
  const body = Buffer.concat(sections.flatMap(({ kind, data }) => [encodeSectionHeader(kind, data), data]))
  header.writeUInt32BE(crc32(body, crc32(header.subarray(0, EIF_CRC_OFFSET))), EIF_CRC_OFFSET)
  return new Uint8Array(Buffer.concat([header, body]))
}

/** Gives PCR0, 1 and 2 of the image that `parts` make, 48 bytes each. */
export function measureParts(parts: Pick<EifParts, 'kernel' | 'cmdline' | 'ramdisks'>) {
  const [boot, ...applications] = parts.ramdisks
  const registers = createRegisters({ sha384: () => createHash('sha384'), crc32 })
  registers.addBoot(parts.kernel)
  registers.addBoot(Buffer.from(parts.cmdline, 'utf8'))
  if (boot !== undefined) registers.addBoot(boot)
  for (const application of applications) registers.addApplication(application)
  return registers.finish()
}

const EIF_VERSION = 4
/** As AWS's builder writes them; whoever starts the enclave gives its own. */
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
