import { FormatError, ProofError } from '../attestation/errors.ts'
import type { Check } from '../attestation/finding.ts'

/** Each cause of an AffidavitError. Stable; the comment says what to do about it. */
export type AffidavitErrorCode =
  // Fix the call.
  | 'invalid_options' //          connect was called with options that make no sense
  | 'invalid_request' //          the body is not JSON that means one thing only
  | 'older_releases' //           a release list is older than the one that it would replace
  | 'unsupported_call' //         affidavit.fetch was called for something that cannot be checked
  // Try again later, or ask the operator.
  | 'unreachable' //              the gateway did not answer
  | 'gateway_error' //            the gateway answered with an error
  | 'not_anchored' //             no block has the completion's anchor yet
  // Stop trusting: the gateway did not show an enclave that is expected.
  | 'invalid_reply' //            the gateway's answer is not of the form that it must have
  | 'no_notary' //                no enclave of the gateway is one that is expected
  | 'unknown_notary' //           the answer is signed by a key of no enclave that is expected
  | 'invalid_document' //         an attestation document is not genuine, or of another key or nonce
  | 'document_expired' //         an attestation document is no longer valid
  | 'document_not_yet_valid' //   one is not valid yet, by more than a minute of this machine's clock
  | 'unexpected_code' //          an enclave runs other code than is expected
  | 'no_encryption_key' //        no expected enclave signed a key that calls can be encrypted to
  | 'unexpected_configuration' // an enclave was booted with another configuration than is expected
  // Stop trusting: the answer is not what an enclave signed.
  | 'redirected' //               the gateway sent the caller elsewhere
  | 'not_encrypted' //            an answer to an encrypted call that is not, or that cannot be opened
  | 'no_proof' //                 an answer without a proof
  | 'error_in_answer' //          an error in place of an answer, or in the middle of one
  | 'invalid_answer' //           an answer that is not JSON that means one thing only
  | 'invalid_stream' //           a stream that readers would take differently
  | 'cut_stream' //               a stream without its end
  | 'answer_too_large' //         an answer beyond the limit of bytes
  | 'wrong_request' //            the answer is to another request
  | 'wrong_response' //           the answer is not the one that was signed
  | 'wrong_stream' //             the chunks are not those that were given out
  | 'wrong_hash' //               the answer's hash is not that of request and response
  | 'wrong_key' //                the answer's key is malformed, or not that of its document
  | 'wrong_signature' //          the signature is not by the answer's key
  | 'wrong_receipt' //            the receipt is malformed, or of another completion
  | 'not_in_log' //               the receipt is not the leaf that it says it is
  | 'wrong_head' //               the log's head is not signed by the notary
  | 'wrong_provider' //           the enclave was not configured to ask this provider
  | 'wrong_credential' //         the provider was not shown the credential that the call demands
  | 'asked_again' //              the gateway had the call made more than once
  | 'incomplete' //               the answer was cut
  | 'other_evidence' //           the evidence is of another completion
  | 'invalid_evidence' //         a check of the evidence failed

/**
 * What the client throws, with a stable code for each cause. `checks` are those that were made of
 * an answer, the failed one among them; none when it did not come to that. The message may have
 * words of the gateway in it.
 */
export class AffidavitError extends Error {
  override readonly name = 'AffidavitError'
  readonly code: AffidavitErrorCode
  readonly checks: readonly Check<string>[]
  /**
   * 400 where a repeat does not help. LangChain repeats what has no HTTP status of such an error,
   * and each repeat would give the gateway another answer to choose from.
   */
  readonly status: 400 | undefined

  constructor(
    code: AffidavitErrorCode,
    message: string,
    options: { readonly cause?: unknown; readonly checks?: readonly Check<string>[] } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.code = code
    this.checks = options.checks ?? []
    this.status = REPEATABLE.has(code) ? undefined : 400
  }
}

/** Those to try again later. */
const REPEATABLE: ReadonlySet<AffidavitErrorCode> = new Set([
  'unreachable',
  'gateway_error',
  'not_anchored',
])

/** A fault in words. */
export function messageOf(fault: unknown): string {
  return fault instanceof Error ? fault.message : String(fault)
}

const SHOWN_LENGTH_MAX = 200

/** Text from the gateway for a message: on one line, bounded, without control characters. */
export function shown(text: string): string {
  const line = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')
  return line.length > SHOWN_LENGTH_MAX ? `${line.slice(0, SHOWN_LENGTH_MAX)}…` : line
}

/** Gives what `read` does; a FormatError or ProofError that it throws becomes one with `code`. */
export function withErrorCode<Type>(code: AffidavitErrorCode, read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    if (!(fault instanceof FormatError || fault instanceof ProofError)) throw fault
    throw new AffidavitError(code, fault.message, { cause: fault })
  }
}
