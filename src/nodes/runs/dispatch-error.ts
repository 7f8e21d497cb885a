import { ApiError } from '../../api/errors.ts'
import type { NodeFault } from '../protocol/frames.ts'

/** Why no node answered, or why a node stopped answering. */
export type DispatchCode =
  /** No node offers the model now, and no node offered it earlier. */
  | 'unsupported_model'
  /** Some nodes have the model, but all of them were busy during the wait. */
  | 'no_nodes'
  /** The request is larger than the frames that nodes accept. */
  | 'request_too_large'
  /**
   * The request contains an address in place of an image, and no node of the model fetches
   * addresses.
   */
  | 'remote_media'
  /**
   * The node's backend refuses the request, with the backend's `status`. The fault is the caller's.
   * For images it may be the node's.
   */
  | 'node_refused'
  /**
   * The node or its backend failed, or its data is not a valid answer. If there is a `status`, the
   * node itself reported the failure.
   */
  | 'node_failed'
  /**
   * The node's backend is at its limit. The node may have said for how long (`retryAfterSeconds`).
   */
  | 'node_busy'
  | 'first_token_timeout'
  | 'token_timeout'
  /** The node's connection ended. */
  | 'node_lost'
  /** The caller read so slowly that too much data waited for the caller. */
  | 'caller_too_slow'
  /** The answer's frames have more bytes than one run may have. */
  | 'answer_too_large'
  /** This process is stopping. */
  | 'stopping'

/**
 * Why no node served a call completely. `message` is our own text and contains no words from the
 * node.
 */
export class DispatchError extends Error {
  override readonly name = 'DispatchError'
  readonly code: DispatchCode
  /**
   * The status code that a node reported. Only `node_refused`, `node_failed` and `node_busy` can
   * have a status. Null for all other codes, and when the node reported no status.
   */
  readonly status: number | null
  /**
   * The node's own text (attacker-controlled, printable, at most 500 characters). Null when the
   * node sent no text.
   */
  readonly nodeMessage: string | null
  /**
   * Length of the pause that the node's backend asked for, seconds. Null when the backend did not
   * ask for a pause.
   */
  readonly retryAfterSeconds: number | null
  /**
   * True if the gateway itself refused the node's answer. This is possible only with `node_failed`.
   */
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

/** Returns the error that a caller gets when the node of its run reports a failure. */
export function faultError(fault: NodeFault | null): DispatchError {
  const status = fault?.statusCode ?? 500
  const nodeMessage = fault === null || fault.message === '' ? null : fault.message
  const retryAfterSeconds = fault?.retryAfterSeconds ?? null
  if (status === BUSY)
    return new DispatchError('node_busy', "The node's backend takes no more calls at the moment", {
      status,
      nodeMessage,
      retryAfterSeconds,
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
 * Status codes which mean that the request is wrong. They say nothing about the node's backend, its
 * configuration or its load.
 */
const CALLER_FAULTS: ReadonlySet<number> = new Set([400, 422])

/** Returns the error for a run whose connection ended. */
export function lostError(): DispatchError {
  return new DispatchError('node_lost', 'The connection to the node ended')
}

/**
 * True if the request may have caused the error that the node reported. The status may be 400 or
 * 500 when the node's library does not know a member, or its backend cannot use a tool. If an
 * answer can be read in two ways, the model may be the only cause. If another node can serve the
 * request, this does not prove that this node has a fault. So a probe decides.
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
 * Statuses which mean that the backend refuses the node's key, or does not have the model. No
 * caller's request causes these statuses.
 */
const OWN_FAULTS: ReadonlySet<number> = new Set([401, 403, 404])

/**
 * True if the error counts as a failure of the node. A lost connection does not count here, because
 * the connection itself records one failure for all its runs.
 */
export function isNodesFault({ code }: DispatchError): boolean {
  return code === 'node_failed' || code === 'first_token_timeout' || code === 'token_timeout'
}

/**
 * Status codes from the backend that concern the caller's request. All other codes are the node's
 * problem.
 */
const CALLER_STATUSES: ReadonlySet<number> = new Set([400, 409, 413, 422])

/**
 * Returns the error that a caller gets when no node answered, or a node stopped answering. It
 * contains the node's own words only for a refusal, because the caller needs them to correct the
 * request. A stranger wrote these words, but they are printable and short.
 */
export function nodeCallErrorOf(error: DispatchError): ApiError {
  switch (error.code) {
    case 'unsupported_model':
      return new ApiError('unsupported_model', 'No node serves this model')
    case 'no_nodes':
      return new ApiError(
        'no_available_inference_nodes',
        'No node is available for this model, try again',
      )
    case 'request_too_large':
      // This message is our own. It states the limit.
      return new ApiError('payload_too_large', error.message)
    case 'remote_media':
      // This message is our own. It names the member.
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
      // This message is our own. It states the limit.
      return new ApiError('answer_too_large', error.message)
    case 'stopping':
      return new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
}

/**
 * Returns our own message, because the caller must not see the node's words about a failure of its
 * backend.
 */
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
