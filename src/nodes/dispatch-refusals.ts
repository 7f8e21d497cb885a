import { ApiError } from '../api/errors.ts'
import type { DispatchError } from './dispatcher.ts'

/** What of a backend's status codes is about the caller's request; all others are the node's trouble. */
const CALLER_STATUSES: ReadonlySet<number> = new Set([400, 409, 413, 422])

/**
 * What a caller is told when no node answered, or one stopped to. Of the node's own words only a refusal's are shown,
 * because without them the caller could not mend the request; they are a stranger's, printable and short.
 */
export function callErrorOf(error: DispatchError): ApiError {
  switch (error.code) {
    case 'unsupported_model':
      return new ApiError('unsupported_model', 'No node serves this model')
    case 'no_nodes':
      return new ApiError('no_available_inference_nodes', 'No node is available for this model, try again')
    case 'request_too_large':
      // In words of ours, which give the limit.
      return new ApiError('payload_too_large', error.message)
    case 'node_refused':
      return refusalOf(error)
    case 'node_busy':
      return new ApiError(
        'rate_limit_exceeded',
        'The nodes of this model are at their limit, try again later',
        {
          ...(error.retryAfterSeconds === null ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
        },
      )
    case 'node_failed':
    case 'node_lost':
      return new ApiError('node_error', failureText(error))
    case 'first_token_timeout':
    case 'token_timeout':
      return new ApiError('node_timeout', 'The node fell silent')
    case 'caller_too_slow':
      return new ApiError('caller_too_slow', 'The answer was read too slowly')
    case 'stopping':
      return new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
}

/** A node that says so itself has broken nothing off. */
function failureText({ status }: DispatchError): string {
  return status === null
    ? 'The node broke off its answer'
    : `The node told that its backend failed, with status ${status}`
}

function refusalOf({ status, nodeMessage }: DispatchError): ApiError {
  if (status === null || !CALLER_STATUSES.has(status))
    return new ApiError('node_error', 'The node could not serve the request')
  const words = nodeMessage === null || nodeMessage === '' ? 'no reason given' : nodeMessage
  return new ApiError('node_refused', `The node refused the request: ${words}`, { status })
}
