import { ApiError } from '../api/errors.ts'
import type { EndpointError, EndpointRefusal } from './endpoint.ts'

/**
 * Returns the error for the caller when a configured service gave no usable answer. Repeats the
 * service's message, except with 401 or 403: these messages may contain the operator's key.
 */
export function serviceCallErrorOf(error: EndpointError): ApiError {
  const { code, refusal } = error
  if (refusal !== null) return refusalOf(refusal, error)
  switch (code) {
    case 'unreachable':
      return new ApiError('provider_unreachable', 'The provider is out of reach', { cause: error })
    case 'timeout':
      return new ApiError('provider_timeout', 'The provider did not answer in time', {
        cause: error,
      })
    case 'answer_too_large':
      return new ApiError(
        'answer_too_large',
        `The provider's answer is too large: ${error.message}. Ask for fewer images, inputs or results in one call`,
        { cause: error },
      )
    case 'bad_answer':
    case 'refused':
      return new ApiError('provider_error', "The provider's answer has a wrong form", {
        cause: error,
      })
  }
}

/** True for a status that is passed on to the caller, who must change the request or wait. */
export function concernsRequest(status: number): boolean {
  return RELAYED.has(status)
}

const RELAYED: ReadonlySet<number> = new Set([400, 409, 413, 422, 429])

export function requestRefused(refusal: EndpointRefusal, cause?: unknown): ApiError {
  const words = refusal.message ?? 'no reason given'
  const details = { status: refusal.status, ...detailsOf(refusal, cause) }
  return new ApiError('provider_refused', `The provider refused the request: ${words}`, details)
}

function refusalOf(refusal: EndpointRefusal, cause: unknown): ApiError {
  const { status, message } = refusal
  if (status === 401 || status === 403)
    return new ApiError(
      'provider_credential_rejected',
      "The provider rejected this service's credential",
      { cause },
    )
  if (concernsRequest(status)) return requestRefused(refusal, cause)
  return new ApiError(
    'provider_error',
    `The provider failed with status ${status}: ${message ?? 'no reason given'}`,
    detailsOf(refusal, cause),
  )
}

function detailsOf(refusal: EndpointRefusal, cause: unknown) {
  const { status, code, type, param, retryAfterSeconds, mayRetry } = refusal
  return {
    providerStatus: status,
    ...(code === null ? {} : { providerCode: code }),
    ...(type === null ? {} : { providerType: type }),
    ...(param === null ? {} : { providerParam: param }),
    ...(retryAfterSeconds === null ? {} : { retryAfterSeconds }),
    ...(mayRetry ? {} : { shouldRetry: false as const }),
    ...(cause === undefined ? {} : { cause }),
  }
}
