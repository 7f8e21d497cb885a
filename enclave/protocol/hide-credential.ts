import type { EnclaveFault } from './enclave-api.ts'

/**
 * Removes the operator's credential from a fault, because some providers repeat the key that they
 * refuse. Does nothing for a caller's credential, or for null.
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
