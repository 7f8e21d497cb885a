import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { ProviderEntry } from '../../enclave/protocol/messages.ts'
import { ApiError } from '../api/errors.ts'

/** Which provider a call is for, and what it is shown. */
export type ChosenCredential = {
  readonly provider: string
  readonly credential: string | null
  /** The operator's own key, and not the caller's. */
  readonly isOperators: boolean
}

/**
 * Chooses the credential for a call: the caller's own, else the operator's for the provider that serves the model,
 * else none for a provider on plain http, which only development has. Throws ApiError `unsupported_model`,
 * `provider_credential_missing`. `credentials` are the operator's, by provider name.
 */
export function chooseCredential(
  call: { readonly model: string; readonly callerCredential: string | null },
  providers: readonly ProviderEntry[],
  credentials: ReadonlyMap<string, string>,
): ChosenCredential {
  const entry = chooseProvider(providers, call.model)
  if (entry === null) throw new ApiError('unsupported_model', 'No provider serves this model')
  const provider = entry.name
  if (call.callerCredential !== null)
    return { provider, credential: call.callerCredential, isOperators: false }
  const credential = credentials.get(provider) ?? null
  if (credential === null && !entry.origin.startsWith('http://'))
    throw new ApiError(
      'provider_credential_missing',
      `This service has no key for the provider ${provider}: send yours as Fine-Tune-Authorization`,
    )
  return { provider, credential, isOperators: credential !== null }
}

/** Whether chooseCredential finds a provider and a credential for the call. */
export function hasCredential(...call: Parameters<typeof chooseCredential>): boolean {
  try {
    chooseCredential(...call)
    return true
  } catch (error) {
    if (error instanceof ApiError) return false
    throw error
  }
}
