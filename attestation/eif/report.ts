import type { JsonObject } from '../json/value.ts'
import type { EifHeader } from './header.ts'
import type { EifMeasurements } from './registers.ts'
import type { Section } from './section.ts'

/** What is known of an image that was measured. */
export type EifReport = {
  readonly sizeBytes: number
  readonly version: number
  readonly architecture: EifHeader['architecture']
  readonly defaultMemoryBytes: bigint
  readonly defaultCpus: bigint
  readonly crc32: number
  /** In the order of the file. */
  readonly sections: readonly Section[]
  readonly measurements: EifMeasurements
  /** What the image says of itself; null without a metadata section. Attacker-controlled and not measured. */
  readonly metadata: JsonObject | null
  /** Null for an image that is not signed. */
  readonly signature: EifSignature | null
  readonly warnings: readonly EifWarning[]
}

/** A signature that was verified: this certificate's key signed this image's PCR0. */
export type EifSignature = {
  readonly algorithm: 'ES256' | 'ES384' | 'ES512'
  /** DER. Its issuer and validity were not checked. */
  readonly certificate: Uint8Array
}

/** Something that equal measurements do not say. */
export type EifWarning = { readonly code: EifWarningCode; readonly message: string }

export type EifWarningCode =
  | 'header_not_measured'
  | 'boundaries_not_measured'
  | 'metadata_not_measured'
  | 'no_metadata'
  | 'no_application'
  | 'certificate_not_judged'
  | 'not_signed'

/** Gives the warnings that apply: the first two to every image. */
export function listWarnings(
  image: Pick<EifReport, 'version' | 'sections' | 'metadata' | 'signature'>,
): readonly EifWarning[] {
  const ramdisks = image.sections.filter(({ kind }) => kind === 'ramdisk').length
  const applying: readonly (EifWarningCode | false)[] = [
    'header_not_measured',
    'boundaries_not_measured',
    image.metadata !== null && 'metadata_not_measured',
    image.metadata === null && image.version >= 4 && 'no_metadata',
    ramdisks === 1 && 'no_application',
    image.signature !== null && 'certificate_not_judged',
    image.signature === null && 'not_signed',
  ]
  return applying.filter((code) => code !== false).map((code) => ({ code, message: WARNINGS[code] }))
}

const WARNINGS: Readonly<Record<EifWarningCode, string>> = {
  header_not_measured:
    'The architecture, version, default memory and CPUs in the header are in no measurement.',
  boundaries_not_measured:
    'Sections are measured one after the other without their lengths: bytes moved over a boundary of kernel, command line and first ramdisk, or of two later ramdisks, leave the measurements as they are.',
  metadata_not_measured: 'The metadata is in no measurement: anyone can write anything into it.',
  no_metadata: 'The image is of version 4 and has no metadata section, as the official tools would write.',
  no_application:
    'There is only one ramdisk, so that PCR2 is the hash of nothing and tells no image from another.',
  certificate_not_judged:
    "The signature is of the certificate's key, but nothing was checked about the certificate itself: neither who issued it nor whether it has expired.",
  not_signed: 'The image is not signed; its PCR8 is zero.',
}
