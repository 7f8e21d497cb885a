import { z } from 'zod'
import { described, faultIssue } from '../api/schemas.ts'

/** Longer credentials are refused: the call's header to the enclave has to hold one, in base64. */
export const CREDENTIAL_LENGTH_MAX = 4096

/**
 * Credential for the provider from the header Fine-Tune-Authorization, with or without `Bearer ` before it; null when the
 * header is missing. The fault of one that cannot be a credential does not repeat it.
 */
const providerCredential = described(
  z
    .string()
    .transform((header) => header.replace(/^bearer(?:\s+|$)/i, '').trim())
    .check(({ value, issues }) => {
      // Printable ASCII without spaces (RFC 9110, token68 and what providers use beyond it).
      if (value.length <= CREDENTIAL_LENGTH_MAX && /^[\x21-\x7e]+$/.test(value)) return
      const expected = `a bearer credential of at most ${CREDENTIAL_LENGTH_MAX} printable characters`
      issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
    }),
  () => ({
    type: 'string',
    maxLength: CREDENTIAL_LENGTH_MAX,
    description: "`Bearer <PROVIDER_API_KEY>`: the caller's own credential at the provider",
  }),
).optional()

/** Headers of a call that may bring the caller's own credential at the provider. */
export const credentialHeaders = z.object({ 'fine-tune-authorization': providerCredential })
