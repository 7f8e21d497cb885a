import { EifError } from './eif-error.ts'
import type { SectionPlace } from './header.ts'

/** What a section holds. Kernel, command line and ramdisks are measured and booted. */
export type SectionKind = 'kernel' | 'cmdline' | 'ramdisk' | 'signature' | 'metadata'

export type Section = SectionPlace & { readonly kind: SectionKind }

/** Most bytes of the two kinds of section that are read into memory whole. */
export const SECTION_BYTES_MAX: Readonly<Record<'signature' | 'metadata', number>> = {
  signature: 65_536,
  metadata: 1_048_576,
}

/**
 * Reads the 12-byte header of section `place` and holds it against the table and against the sections `before` it in
 * an image of `version`. Throws EifError.
 */
export function parseSectionHeader(
  bytes: Uint8Array,
  context: { readonly place: SectionPlace; readonly before: readonly Section[]; readonly version: number },
): Section {
  const { place, before, version } = context
  const index = before.length
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const kind = KIND_OF_TYPE[view.getUint16(0)]
  if (kind === undefined)
    throw new EifError('section_type', `section ${index} is of the unknown type ${view.getUint16(0)}`)
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

/** Refuses an image that lacks what every enclave boots from. Throws EifError. */
export function checkComplete(sections: readonly Section[]): void {
  for (const kind of ['kernel', 'cmdline', 'ramdisk'] as const)
    if (!sections.some((section) => section.kind === kind))
      throw new EifError(`missing_${kind}`, `expected a ${kind} section`)
}

/** EifSectionType of aws-nitro-enclaves-image-format; 0 is its "invalid". */
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
