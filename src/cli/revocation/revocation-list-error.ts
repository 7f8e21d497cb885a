import { CliError } from '../exit-codes.ts'
import { printable } from '../printable.ts'

/** What is wrong with a revocation list, one code for each check. */
export type RevocationListCode =
  | 'malformed' //      no list in DER or PEM, or not of version 2 with an end
  | 'algorithm' //      not signed by ECDSA with SHA-384
  | 'unsupported' //    a delta, an indirect list, one of some reasons, or a critical extension that is not understood
  | 'not_yet_valid' //  begins later than now
  | 'foreign' //        no CA certificate in the document's chain is its issuer
  | 'signature' //      the issuer in the chain did not sign it
  | 'key_usage' //      the issuer may not sign lists
  | 'scope' //          it is not about the certificate that its issuer issued here
  | 'unused' //         of several documents, it says nothing of any

/** A revocation list that cannot be used: it is told, and never left out in silence. */
export class RevocationListError extends CliError {
  readonly code: RevocationListCode

  constructor(
    code: RevocationListCode,
    { source, message }: { readonly source: string; readonly message: string },
  ) {
    super(`--crl ${printable(source)}: ${message}`)
    this.code = code
  }
}
