import { ValidationError } from '../api/errors.ts'

/** Longer credentials are refused: the call's header to the enclave has to hold one, in base64. */
export const CREDENTIAL_LENGTH_MAX = 4096

/** Name of the header, as node gives it. */
export const CREDENTIAL_HEADER = 'fine-tune-authorization'

/**
 * Credential for the provider from the header Fine-Tune-Authorization, with or without `Bearer ` before it; null when
 * the header is missing. Throws ValidationError for one that cannot be a credential. The message does not repeat it.
 */
export function parseProviderCredential(header: string | undefined): string | null {
  if (header === undefined) return null
  const credential = header.replace(/^bearer(?:\s+|$)/i, '').trim()
  // Printable ASCII without spaces (RFC 9110, token68 and what providers use beyond it).
  if (credential.length <= CREDENTIAL_LENGTH_MAX && /^[\x21-\x7e]+$/.test(credential)) return credential
  const msg = `Input should be a bearer credential of at most ${CREDENTIAL_LENGTH_MAX} printable characters`
  throw new ValidationError([{ loc: ['header', CREDENTIAL_HEADER], msg, type: 'value_error' }])
}
