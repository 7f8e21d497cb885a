import { z } from 'zod'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { chooseProvider, unsupportedMessage } from '#enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import type { RouteContext } from '../../api/context.ts'
import { ApiError } from '../../api/errors.ts'
import { described, faultIssue } from '../../api/schemas.ts'

/** The provider and credential for a call, as the enclave gets them in CompletionCall. */

export type ChosenCredential = {
  readonly provider: string
  readonly credential: string | null
  /** False for the caller's credential. */
  readonly isOperators: boolean
}

/**
 * Prefers the caller's credential to the operator's for the provider that serves the model.
 * `credentials` are the operator's, by provider name. A provider on plain http (only in
 * development) needs no credential. Throws ApiError `unsupported_model`,
 * `provider_credential_missing`.
 */
export function chooseCredential(
  call: {
    readonly model: string
    readonly callerCredential: string | null
    /** Default: chat. */
    readonly dialect?: DialectName
  },
  providers: readonly ProviderEntry[],
  credentials: ReadonlyMap<string, string>,
): ChosenCredential {
  const { model, dialect = 'chat' } = call
  const entry = chooseProvider(providers, model, dialect)
  if (entry === null)
    throw new ApiError('unsupported_model', unsupportedMessage(providers, model, dialect))
  const provider = entry.name
  if (call.callerCredential !== null)
    return { provider, credential: call.callerCredential, isOperators: false }
  const credential = credentials.get(provider) ?? null
  if (credential === null && !entry.origin.startsWith('http://'))
    throw new ApiError(
      'provider_credential_missing',
      `This service has no key for the provider ${provider}: send your own key as Fine-Tune-Authorization`,
    )
  return { provider, credential, isOperators: credential !== null }
}

/** True if chooseCredential would not throw ApiError. */
export function hasCredential(...call: Parameters<typeof chooseCredential>): boolean {
  try {
    chooseCredential(...call)
    return true
  } catch (error) {
    if (error instanceof ApiError) return false
    throw error
  }
}

/** In base64, this length still fits in a header. */
const CREDENTIAL_LENGTH_MAX = 4096

/** `Bearer ` is optional. The error never repeats the credential. */
const providerCredential = described(
  z
    .string()
    .transform((header) => header.replace(/^bearer(?:\s+|$)/i, '').trim())
    .check(({ value, issues }) => {
      // Printable ASCII without spaces: token68 (RFC 9110), and other characters that providers
      // use.
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

/** The caller's own credential at the provider. */
export const credentialHeaders = z.object({ 'fine-tune-authorization': providerCredential })

/** `names` are in lower case. Leaves out headers that the call does not have. */
export function givenHeaders(
  { req }: RouteContext,
  names: readonly string[],
): Readonly<Record<string, string>> {
  const given = names.flatMap((name) => {
    const value = req.headers[name]
    return value === undefined ? [] : [[name, String(value)] as const]
  })
  return Object.fromEntries(given)
}
