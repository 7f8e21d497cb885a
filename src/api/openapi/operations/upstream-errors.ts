import type { ErrorCode } from '../../errors.ts'

/** What services that the operator configured may be to blame for. */
export const upstreamErrors = [
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_timeout',
  'provider_credential_rejected',
  'answer_too_large',
] as const satisfies readonly ErrorCode[]
