import { FormatError } from '../errors.ts'

/** Why an image was refused. */
export type EifErrorCode =
  | 'header_truncated' //        fewer bytes than a header has
  | 'magic' //                   does not begin with ".eif"
  | 'version' //                 not 2, 3 or 4
  | 'header_flags' //            a flag other than the architecture's
  | 'header_reserved' //         a reserved field of the header is not zero
  | 'section_count' //           not 1 to 32 sections
  | 'section_table' //           an entry of the section table beyond the count is not zero
  | 'section_order' //           a section begins before the previous section of the table
  | 'section_gap' //             bytes between two sections, or between the header and the first
  | 'section_overlap' //         a section begins before the header or the one ahead of it ends
  | 'section_beyond_file' //     a section ends after the file does
  | 'trailing_data' //           bytes after the last section
  | 'section_type' //            not one of the five kinds of section
  | 'section_flags' //           a flag of a section header is set
  | 'section_size_mismatch' //   the section's own header says another size than the table
  | 'section_not_in_version' //  a signature before version 3, metadata before version 4
  | 'section_repeated' //        a second kernel, command line, metadata or signature
  | 'section_too_large' //       a signature or metadata section beyond its limit
  | 'missing_kernel'
  | 'missing_cmdline'
  | 'missing_ramdisk'
  | 'crc' //                     the checksum in the header is not that of the file
  | 'metadata_malformed' //      not a JSON object
  | 'signature_malformed' //     not an array of one {signing_certificate, signature} in integers 0 to 255
  | 'certificate_malformed' //   no PEM certificate, or one with a key that cannot sign images
  | 'cose_malformed' //          the signature is not a COSE_Sign1
  | 'cose_algorithm' //          not ES256, ES384 or ES512, or not the one of the certificate's key
  | 'signature_payload' //       signed for another PCR0 than this image has
  | 'signature_invalid' //       not signed by the certificate's key
  | 'source_changed' //          the source gave fewer or more bytes than its size

/** An enclave image does not have the form it must have. It gets no measurement. */
export class EifError extends FormatError {
  override readonly name = 'EifError'
  declare readonly code: EifErrorCode

  constructor(code: EifErrorCode, message: string) {
    super(code, message)
  }
}
