import { FormatError } from '../errors.ts'

export type EifErrorCode =
  | 'header_truncated' //        fewer bytes than a header has
  | 'magic' //                   does not begin with ".eif"
  | 'version' //                 not 2, 3 or 4
  | 'header_flags' //            a flag other than the architecture flag is set
  | 'header_reserved' //         a reserved field of the header is not zero
  | 'section_count' //           not 1 to 32 sections
  | 'section_table' //           an entry of the section table after the last section is not zero
  | 'section_order' //           a section begins before the previous section of the table
  | 'section_gap' //             there are bytes before the first section or between two sections
  | 'section_overlap' //         a section begins before the end of the header or of another section
  | 'section_beyond_file' //     a section ends after the end of the file
  | 'trailing_data' //           bytes after the last section
  | 'section_type' //            not one of the five kinds of section
  | 'section_flags' //           a flag of a section header is set
  | 'section_size_mismatch' //   the section's header and the table state different sizes
  | 'section_not_in_version' //  a signature before version 3, metadata before version 4
  | 'section_repeated' //        a second kernel, command line, metadata or signature
  | 'section_too_large' //       a signature or metadata section beyond its limit
  | 'missing_kernel'
  | 'missing_cmdline'
  | 'missing_ramdisk'
  | 'crc' //                     the checksum in the header is not the checksum of the file
  | 'metadata_malformed' //      not a JSON object
  | 'signature_malformed' //     not [{signing_certificate, signature}] with integers from 0 to 255
  | 'certificate_malformed' //   not a PEM certificate, or its key cannot sign images
  | 'cose_malformed' //          the signature is not a COSE_Sign1
  | 'cose_algorithm' //          not ES256, ES384 or ES512, or not for the certificate's key
  | 'signature_payload' //       the signed PCR0 is not the PCR0 of this image
  | 'signature_invalid' //       not signed by the certificate's key
  | 'source_changed' //          the source gave fewer or more bytes than its size

/** The image has a wrong form, so it cannot be measured. */
export class EifError extends FormatError {
  override readonly name = 'EifError'
  declare readonly code: EifErrorCode

  constructor(code: EifErrorCode, message: string) {
    super(code, message)
  }
}
