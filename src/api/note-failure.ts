import type { Logger } from '../observability/logger.ts'
import type { ApiContext } from './context.ts'
import { type ApiError, asApiError } from './errors.ts'

/**
 * Gives what a caller is told of a fault, keeps it in the call's state for whoever reports the call, and logs what the caller is
 * not told: an error that is not ours, or what stands behind one that is.
 */
export function noteFailure({ state }: Pick<ApiContext, 'state'>, error: unknown, log: Logger): ApiError {
  const told = asApiError(error)
  const { requestId } = state
  state.failure = { code: told.code, status: told.status }
  if (told.cause !== undefined) log.error({ requestId, err: told.cause }, 'call could not be served')
  else if (told !== error) log.error({ requestId, err: error }, 'unexpected error')
  return told
}
