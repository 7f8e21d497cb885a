import type { EnclaveFault } from './messages.ts'

/**
 * The fault without the operator's credential: providers are known to repeat the key that they
 * refuse, and it is not the caller's to see. Null, or the caller's own: nothing is hidden.
 */
export function hideCredential(
  fault: EnclaveFault,
  {
    credential,
    isOperators,
  }: { readonly credential: string | null; readonly isOperators: boolean },
): EnclaveFault {
  if (!isOperators || credential === null) return fault
  const { provider_code: providerCode } = fault
  return {
    ...fault,
    message: fault.message.replaceAll(credential, '[credential]'),
    ...(providerCode === undefined
      ? {}
      : { provider_code: providerCode.replaceAll(credential, '[credential]') }),
  }
}
