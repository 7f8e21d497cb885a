import { FormatError, ProofError } from '#attestation/errors.ts'
import type { Check } from '#attestation/finding.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'

/** Each cause of an AffidavitError. The codes are stable. The headings explain what to do. */
export type AffidavitErrorCode =
  // Fix the call.
  | 'invalid_options' // the options of connect are not valid
  | 'invalid_request' // the body is not JSON, or readers could parse it differently
  | 'older_releases' // a new release list is older than the list that it would replace
  | 'unsupported_call' // affidavit.fetch does not support this method or path
  // Try again later, or ask the operator.
  | 'unreachable' // the gateway did not answer
  | 'gateway_error' // the gateway answered with an error
  | 'not_anchored' // the completion's anchor is not in a block yet
  // Stop trusting: the gateway did not show an accepted enclave.
  | 'invalid_reply' // the gateway's answer does not have the required form
  | 'no_notary' // the gateway has no accepted enclave
  | 'unknown_notary' // the key that signed the answer does not belong to an accepted enclave
  | 'invalid_document' // an attestation document is not genuine, or has a wrong key or nonce
  | 'document_expired' // an attestation document is no longer valid
  | 'document_not_yet_valid' // a document becomes valid more than a minute from now
  | 'unexpected_code' // an enclave does not run the expected code
  | 'no_encryption_key' // no expected enclave signed a key for the encryption of calls
  | 'no_attested_provider' // the gateway has no provider whose evidence your policies accept
  | 'unexpected_configuration' // an enclave does not have an expected boot configuration
  // Stop trusting: the answer is not what an enclave signed.
  | 'redirected' // the gateway answered with a redirect
  | 'not_encrypted' // the answer is not encrypted, or cannot be decrypted
  | 'no_proof' // the answer has no proof
  | 'error_in_answer' // an error came instead of the answer, or in the middle
  | 'invalid_answer' // the answer is not JSON, or readers could parse it differently
  | 'invalid_stream' // readers could parse the stream differently
  | 'cut_stream' // the stream ended early
  | 'answer_too_large' // the answer is larger than the limit
  | 'wrong_request' // the answer belongs to another request
  | 'wrong_response' // the answer is not the signed answer
  | 'wrong_stream' // the chunks are not the chunks that the enclave sent
  | 'wrong_hash' // the answer's hash does not match request and response
  | 'wrong_key' // the answer's key is malformed, or is not in the attestation document
  | 'wrong_signature' // the signature was not made with the answer's key
  | 'wrong_receipt' // the receipt is malformed, or belongs to another completion
  | 'not_in_log' // the receipt is not the leaf at its index
  | 'wrong_head' // the notary did not sign the log's head
  | 'wrong_provider' // the enclave's configuration does not have this provider
  | 'wrong_provider_key' // the provider did not have a key that the call demands
  | 'wrong_credential' // the enclave did not use the credential that the call demands
  | 'asked_again' // the gateway made the enclave repeat the call
  | 'incomplete' // the answer was cut
  | 'other_evidence' // the evidence belongs to another completion
  | 'invalid_evidence' // a check of the evidence failed

/**
 * An error of the client, with a stable code for each cause. `checks` contains the checks of the
 * answer that were made, including the failed check. The message may contain text from the gateway.
 */
export class AffidavitError extends Error {
  override readonly name = 'AffidavitError'
  readonly code: AffidavitErrorCode
  readonly checks: readonly Check<string>[]
  /**
   * 400 if clients must not repeat the call. LangChain repeats a call unless its error has a status
   * such as 400. Each repeat would give the gateway one more answer to choose from.
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

/** After these errors, a later attempt may succeed. */
const REPEATABLE: ReadonlySet<AffidavitErrorCode> = new Set([
  'unreachable',
  'gateway_error',
  'not_anchored',
])

export function messageOf(fault: unknown): string {
  return fault instanceof Error ? fault.message : String(fault)
}

export function invalidReply(message: string): AffidavitError {
  return new AffidavitError('invalid_reply', message)
}

const SHOWN_LENGTH_MAX = 200

/** Makes text from the gateway safe for a message: one short line without control characters. */
export function shown(text: string): string {
  const line = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')
  return line.length > SHOWN_LENGTH_MAX ? `${line.slice(0, SHOWN_LENGTH_MAX)}…` : line
}

/** Throws AffidavitError with `code` instead of FormatError and ProofError. */
export function withErrorCode<Type>(code: AffidavitErrorCode, read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    const isTheirs = [FormatError, ProofError, PolicyError].some((known) => fault instanceof known)
    if (!isTheirs || !(fault instanceof Error)) throw fault
    throw new AffidavitError(code, fault.message, { cause: fault })
  }
}
