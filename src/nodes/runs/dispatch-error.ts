import { ApiError } from '../../api/errors.ts'
import type { NodeFault } from '../protocol/frames.ts'

/** Why no node answered, or one stopped to. */
export type DispatchCode =
  /** No node that is or ever was connected offers the model. */
  | 'unsupported_model'
  /** Nodes of the model are known, but none was free within the wait. */
  | 'no_nodes'
  /** The request is larger than the frames that nodes take. */
  | 'request_too_large'
  /** The request has an address in place of an image, and no node of the model fetches such. */
  | 'remote_media'
  /**
   * The node's backend refuses the request (`status` is the backend's): the caller's fault. With
   * images it may be the node's.
   */
  | 'node_refused'
  /**
   * The node or its backend failed, or what it sent was no answer. With a `status` the node said so
   * itself.
   */
  | 'node_failed'
  /** The node's backend is at its limit, and may have said for how long (`retryAfterSeconds`). */
  | 'node_busy'
  | 'first_token_timeout'
  | 'token_timeout'
  /** The node's connection ended. */
  | 'node_lost'
  /** The caller read so slowly that more than may be kept was waiting. */
  | 'caller_too_slow'
  /** The answer has more bytes of frames than one run may have. */
  | 'answer_too_large'
  /** This process is stopping. */
  | 'stopping'

/**
 * A call that no node served, or not to its end. `message` is ours and holds nothing of the node's.
 */
export class DispatchError extends Error {
  override readonly name = 'DispatchError'
  readonly code: DispatchCode
  /**
   * The status code a node told; null for every code but `node_refused`, `node_failed` and
   * `node_busy`, and where it told none.
   */
  readonly status: number | null
  /** What the node said (attacker-controlled, printable, at most 500 characters), or null. */
  readonly nodeMessage: string | null
  /** Seconds that the node's backend asked to be left alone; null where it told none. */
  readonly retryAfterSeconds: number | null
  /** With `node_failed`: the gateway refused what the node answered. */
  readonly isGatewaysJudgement: boolean

  constructor(
    code: DispatchCode,
    message: string,
    details: {
      readonly status?: number | null
      readonly nodeMessage?: string | null
      readonly retryAfterSeconds?: number | null
      readonly isGatewaysJudgement?: boolean
    } = {},
  ) {
    super(message)
    this.code = code
    this.status = details.status ?? null
    this.nodeMessage = details.nodeMessage ?? null
    this.retryAfterSeconds = details.retryAfterSeconds ?? null
    this.isGatewaysJudgement = details.isGatewaysJudgement ?? false
  }
}

/** The error for a caller of a run that its node says has failed. */
export function faultError(fault: NodeFault | null): DispatchError {
  const status = fault?.statusCode ?? 500
  const nodeMessage = fault === null || fault.message === '' ? null : fault.message
  const retryAfterSeconds = fault?.retryAfterSeconds ?? null
  if (status === BUSY)
    return new DispatchError('node_busy', "The node's backend takes no more calls at the moment", {
      ...{ status, nodeMessage, retryAfterSeconds },
    })
  return CALLER_FAULTS.has(status)
    ? new DispatchError('node_refused', "The node's backend refused the request", {
        status,
        nodeMessage,
      })
    : new DispatchError('node_failed', "The node's backend failed", { status, nodeMessage })
}

const BUSY = 429

/**
 * Status codes that blame the request, and not the node's backend, its configuration or its load.
 */
const CALLER_FAULTS: ReadonlySet<number> = new Set([400, 422])

/** The error of a run whose connection ended. */
export function lostError(): DispatchError {
  return new DispatchError('node_lost', 'The connection to the node ended')
}

/**
 * Whether the request may be the cause of what the node told. A member that the node's library does
 * not know, or a tool that its backend cannot use, is a 500 as often as a 400, and an answer that
 * two readers could take in two ways may be the model's alone; whether another node could serve it
 * shows nothing of this one. A probe will.
 */
export function mayBeRequestsFault(error: DispatchError): boolean {
  const { code, status } = error
  return (
    code === 'node_refused' ||
    error.isGatewaysJudgement ||
    (code === 'node_failed' && status !== null && !OWN_FAULTS.has(status))
  )
}

/**
 * A backend that refuses its node's key, or does not have the model: no request of a caller does
 * that.
 */
const OWN_FAULTS: ReadonlySet<number> = new Set([401, 403, 404])

/**
 * Whether it speaks against the node. So does a lost connection, but once for all its runs: the
 * connection notes it.
 */
export function isNodesFault({ code }: DispatchError): boolean {
  return code === 'node_failed' || code === 'first_token_timeout' || code === 'token_timeout'
}

/**
 * What of a backend's status codes is about the caller's request; all others are the node's
 * trouble.
 */
const CALLER_STATUSES: ReadonlySet<number> = new Set([400, 409, 413, 422])

/**
 * What a caller is told when no node answered, or one stopped to. Of the node's own words only a
 * refusal's are shown, because without them the caller could not mend the request; they are a
 * stranger's, printable and short.
 */
export function callErrorOf(error: DispatchError): ApiError {
  switch (error.code) {
    case 'unsupported_model':
      return new ApiError('unsupported_model', 'No node serves this model')
    case 'no_nodes':
      return new ApiError(
        'no_available_inference_nodes',
        'No node is available for this model, try again',
      )
    case 'request_too_large':
      // In words of ours, which give the limit.
      return new ApiError('payload_too_large', error.message)
    case 'remote_media':
      // In words of ours, which name the member.
      return new ApiError('unsupported_request_parameter', error.message)
    case 'node_refused':
      return refusalOf(error)
    case 'node_busy':
      return new ApiError(
        'rate_limit_exceeded',
        'The nodes of this model are at their limit, try again later',
        {
          ...(error.retryAfterSeconds === null
            ? {}
            : { retryAfterSeconds: error.retryAfterSeconds }),
        },
      )
    case 'node_failed':
    case 'node_lost':
      return new ApiError('node_error', failureText(error))
    case 'first_token_timeout':
    case 'token_timeout':
      return new ApiError('node_timeout', 'The node stopped answering')
    case 'caller_too_slow':
      return new ApiError('caller_too_slow', 'The caller read the answer too slowly')
    case 'answer_too_large':
      // In words of ours, which give the limit.
      return new ApiError('answer_too_large', error.message)
    case 'stopping':
      return new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
}

/** In words of ours: the node's, where it says that its backend failed, are not shown. */
function failureText({ status, message }: DispatchError): string {
  return status === null
    ? message
    : `The node reported that its backend failed, with status ${status}`
}

function refusalOf({ status, nodeMessage }: DispatchError): ApiError {
  if (status === null || !CALLER_STATUSES.has(status))
    return new ApiError('node_error', 'The node could not serve the request')
  const words = nodeMessage === null || nodeMessage === '' ? 'no reason given' : nodeMessage
  return new ApiError('node_refused', `The node's backend refused the request: ${words}`, {
    status,
  })
}
