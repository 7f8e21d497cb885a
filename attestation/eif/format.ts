import { EifError } from './eif-error.ts'

/** All integers in the header are big-endian. */
export const EIF_HEADER_BYTES = 548

/** The header's last four bytes hold the CRC-32 of all other bytes. */
export const EIF_CRC_OFFSET = 544

export const EIF_SECTION_HEADER_BYTES = 12
export const EIF_SECTIONS_MAX = 32

export type EifHeader = {
  readonly version: number
  /** Read from a flag that no measurement covers. */
  readonly architecture: 'x86_64' | 'aarch64'
  /** The image's default, which the host may override. No measurement covers it. */
  readonly defaultMemoryBytes: bigint
  readonly defaultCpus: bigint
  readonly crc32: number
  /** In the order of the file, without gaps, from the header to the last byte. */
  readonly sections: readonly SectionPlace[]
}

/** The section has its header at `offset`, and its data after the header. */
type SectionPlace = { readonly offset: number; readonly dataBytes: number }

/**
 * Reads the header of an attacker-controlled image of `fileBytes` bytes. The header's table must
 * cover every byte of the file exactly once, in order. In another layout, the hypervisor (which
 * reads the table) and AWS's tools (which read from start to end) could see different sections.
 * Throws EifError.
 */
export function parseEifHeader(bytes: Uint8Array, fileBytes: number): EifHeader {
  if (bytes.length < EIF_HEADER_BYTES)
    throw new EifError(
      'header_truncated',
      `expected a header of ${EIF_HEADER_BYTES} bytes, got ${bytes.length}`,
    )
  const view = new DataView(bytes.buffer, bytes.byteOffset, EIF_HEADER_BYTES)
  if (view.getUint32(0) !== MAGIC)
    throw new EifError('magic', 'expected the file to begin with ".eif"')
  const version = view.getUint16(4)
  if (version < VERSION_MIN || version > VERSION_MAX)
    throw new EifError(
      'version',
      `expected version ${VERSION_MIN} to ${VERSION_MAX}, got ${version}`,
    )
  const flags = view.getUint16(6)
  if ((flags & ~FLAG_AARCH64) !== 0)
    throw new EifError(
      'header_flags',
      `expected no flags but the architecture's, got 0x${flags.toString(16)}`,
    )
  if (view.getUint16(24) !== 0 || view.getUint32(540) !== 0)
    throw new EifError('header_reserved', 'expected the reserved fields of the header to be zero')
  return {
    version,
    architecture: flags === FLAG_AARCH64 ? 'aarch64' : 'x86_64',
    defaultMemoryBytes: view.getBigUint64(8),
    defaultCpus: view.getBigUint64(16),
    crc32: view.getUint32(EIF_CRC_OFFSET),
    sections: parseTable(view, BigInt(fileBytes)),
  }
}

/** ".eif" */
const MAGIC = 0x2e656966
/**
 * Version 2 added the CRC, 3 the signature section, 4 the metadata section
 * (aws-nitro-enclaves-image-format).
 */
const VERSION_MIN = 2
const VERSION_MAX = 4
const FLAG_AARCH64 = 1
const COUNT_OFFSET = 26
const OFFSETS_OFFSET = 28
const SIZES_OFFSET = OFFSETS_OFFSET + 8 * EIF_SECTIONS_MAX

/** Adds bigints: the sum of a large offset and a size must not wrap around to a small number. */
function parseTable(view: DataView, fileBytes: bigint): readonly SectionPlace[] {
  const count = view.getUint16(COUNT_OFFSET)
  if (count < 1 || count > EIF_SECTIONS_MAX)
    throw new EifError('section_count', `expected 1 to ${EIF_SECTIONS_MAX} sections, got ${count}`)
  const sections: SectionPlace[] = []
  let previous = 0n
  let end = BigInt(EIF_HEADER_BYTES)
  for (let index = 0; index < EIF_SECTIONS_MAX; index++) {
    const offset = view.getBigUint64(OFFSETS_OFFSET + 8 * index)
    const size = view.getBigUint64(SIZES_OFFSET + 8 * index)
    if (index >= count) {
      if (offset !== 0n || size !== 0n)
        throw new EifError(
          'section_table',
          `expected entry ${index} of the table to be zero, beyond the last section`,
        )
      continue
    }
    checkStart({ index, offset, previous, end })
    previous = offset
    end = offset + BigInt(EIF_SECTION_HEADER_BYTES) + size
    if (end > fileBytes)
      throw new EifError(
        'section_beyond_file',
        `section ${index} ends at byte ${end} of ${fileBytes}${SIGNED_AGAIN}`,
      )
    sections.push({ offset: Number(offset), dataBytes: Number(size) })
  }
  if (end < fileBytes)
    throw new EifError(
      'trailing_data',
      `${fileBytes - end} bytes follow the last section${SIGNED_AGAIN}`,
    )
  return sections
}

/** The end of messages about faults that nitro-cli causes when it signs an image twice. */
const SIGNED_AGAIN =
  ': an image that was signed again keeps the size of its first signature here; sign the unsigned image'

function checkStart({
  index,
  offset,
  previous,
  end,
}: {
  readonly index: number
  readonly offset: bigint
  readonly previous: bigint
  readonly end: bigint
}): void {
  if (offset > end)
    throw new EifError(
      'section_gap',
      `${offset - end} bytes before section ${index} belong to none`,
    )
  if (offset === end) return
  if (offset >= EIF_HEADER_BYTES && offset < previous)
    throw new EifError('section_order', `section ${index} begins before section ${index - 1}`)
  throw new EifError(
    'section_overlap',
    `section ${index} begins at byte ${offset}, before byte ${end}`,
  )
}

/** Kernel, command line and ramdisks are measured and booted. */
export type SectionKind = 'kernel' | 'cmdline' | 'ramdisk' | 'signature' | 'metadata'

export type Section = SectionPlace & { readonly kind: SectionKind }

/** Maximum bytes of a section that is read into memory whole. */
export const SECTION_BYTES_MAX: Readonly<Record<'signature' | 'metadata', number>> = {
  signature: 65_536,
  metadata: 1_048_576,
}

/**
 * Reads the 12-byte section header at `place`. Checks it against the table, the `version` and the
 * sections `before` it. Throws EifError.
 */
export function parseSectionHeader(
  bytes: Uint8Array,
  {
    place,
    before,
    version,
  }: {
    readonly place: SectionPlace
    readonly before: readonly Section[]
    readonly version: number
  },
): Section {
  const index = before.length
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const kind = KIND_OF_TYPE[view.getUint16(0)]
  if (kind === undefined)
    throw new EifError(
      'section_type',
      `section ${index} is of the unknown type ${view.getUint16(0)}`,
    )
  if (view.getUint16(2) !== 0) throw new EifError('section_flags', `section ${index} has flags set`)
  if (view.getBigUint64(4) !== BigInt(place.dataBytes))
    throw new EifError(
      'section_size_mismatch',
      `section ${index} says ${view.getBigUint64(4)} bytes, the header's table ${place.dataBytes}`,
    )
  if (version < VERSION_OF_KIND[kind])
    throw new EifError('section_not_in_version', `version ${version} has no ${kind} section`)
  if (kind !== 'ramdisk' && before.some((section) => section.kind === kind))
    throw new EifError('section_repeated', `section ${index} is a second ${kind}`)
  if ((kind === 'signature' || kind === 'metadata') && place.dataBytes > SECTION_BYTES_MAX[kind])
    throw new EifError(
      'section_too_large',
      `${kind} of ${place.dataBytes} bytes, at most ${SECTION_BYTES_MAX[kind]}`,
    )
  return { ...place, kind }
}

/** Throws EifError if a section that every enclave needs to boot is missing. */
export function checkComplete(sections: readonly Section[]): void {
  for (const kind of ['kernel', 'cmdline', 'ramdisk'] as const)
    if (!sections.some((section) => section.kind === kind))
      throw new EifError(`missing_${kind}`, `expected a ${kind} section`)
}

/** EifSectionType of aws-nitro-enclaves-image-format. There, 0 is "invalid". */
const KIND_OF_TYPE: Readonly<Record<number, SectionKind | undefined>> = {
  1: 'kernel',
  2: 'cmdline',
  3: 'ramdisk',
  4: 'signature',
  5: 'metadata',
}

const VERSION_OF_KIND: Readonly<Record<SectionKind, number>> = {
  kernel: 2,
  cmdline: 2,
  ramdisk: 2,
  signature: 3,
  metadata: 4,
}
