import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'

/**
 * Whether it is certain, after this error, that no answer was made that could still come to be
 * known.
 */
export function isWithoutResult(error: unknown): boolean {
  if (error instanceof ValidationError) return true
  return error instanceof ApiError && (error.leavesNoResult || WITHOUT_RESULT.has(error.code))
}

const WITHOUT_RESULT: ReadonlySet<ErrorCode> = new Set([
  'unsupported_model',
  'provider_credential_missing',
  'provider_credential_rejected',
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_timeout',
  'answer_too_large',
  'log_full',
  'overloaded',
  'rate_limit_exceeded',
  'no_available_inference_nodes',
  'node_refused',
  'node_error',
  'node_timeout',
])
