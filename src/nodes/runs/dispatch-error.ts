import { ApiError } from '../../api/errors.ts'
import type { NodeFault, StatedError } from '../protocol/frames.ts'

export const DISPATCH_CODES = [
  /** No node offers the model now, and no node offered the model earlier. */
  'unsupported_model',
  'unsupported_dialect',
  /** Nodes have the model, but all were busy during the wait. */
  'no_nodes',
  'request_too_large',
  /** The request has an address in place of an image. No node of the model fetches addresses. */
  'remote_media',
  /**
   * The node's backend refuses the request with `status`. The request is wrong. For images, the
   * node itself may be at fault.
   */
  'node_refused',
  /**
   * The node or its backend failed, or sent no valid answer. A `status` means that the node itself
   * reported the failure.
   */
  'node_failed',
  /** The node's backend is at its limit, for `retryAfterSeconds` if the node stated a time. */
  'node_busy',
  'first_token_timeout',
  'token_timeout',
  'node_lost',
  /** The caller read too slowly, and too much data waited. */
  'caller_too_slow',
  /** The answer's frames have more bytes than one run may have. */
  'answer_too_large',
  'stopping',
] as const
export type DispatchCode = (typeof DISPATCH_CODES)[number]

/** `message` is our own text, without words from the node. */
export class DispatchError extends Error {
  override readonly name = 'DispatchError'
  readonly code: DispatchCode
  /** The node reported this status. Only with `node_refused`, `node_failed` and `node_busy`. */
  readonly status: number | null
  /** The node's own text: attacker-controlled, printable, at most 500 characters. */
  readonly nodeMessage: string | null
  /** What the node's backend states beside its message, like the message. */
  readonly stated: StatedError | null
  /** The pause that the node's backend asked for. */
  readonly retryAfterSeconds: number | null
  /** The gateway itself refused the node's answer. Only with `node_failed`. */
  readonly isGatewaysJudgement: boolean

  constructor(
    code: DispatchCode,
    message: string,
    details: {
      readonly status?: number | null
      readonly nodeMessage?: string | null
      readonly stated?: StatedError | null
      readonly retryAfterSeconds?: number | null
      readonly isGatewaysJudgement?: boolean
    } = {},
  ) {
    super(message)
    this.code = code
    this.status = details.status ?? null
    this.nodeMessage = details.nodeMessage ?? null
    this.stated = details.stated ?? null
    this.retryAfterSeconds = details.retryAfterSeconds ?? null
    this.isGatewaysJudgement = details.isGatewaysJudgement ?? false
  }
}

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
        stated: fault?.stated ?? null,
      })
    : new DispatchError('node_failed', "The node's backend failed", { status, nodeMessage })
}

const BUSY = 429

/** These statuses mean that the request is wrong. Other statuses concern the backend. */
const CALLER_FAULTS: ReadonlySet<number> = new Set([400, 422])

export function lostError(): DispatchError {
  return new DispatchError('node_lost', 'The connection to the node ended')
}

/**
 * True if it is open whether the request or the node caused the error. A probe then tests the node.
 * Status 400 or 500 can mean that the node's library does not know a member, or that its backend
 * cannot use a tool. If the gateway refused the answer, the model alone can be at fault.
 */
export function mayBeRequestsFault(error: DispatchError): boolean {
  const { code, status } = error
  return (
    code === 'node_refused' ||
    error.isGatewaysJudgement ||
    (code === 'node_failed' && status !== null && !OWN_FAULTS.has(status))
  )
}

/** These statuses mean that the backend refuses the node's key, or lacks the model. */
const OWN_FAULTS: ReadonlySet<number> = new Set([401, 403, 404])

/**
 * True if the error counts as a failure of the node. A lost connection is not included: the
 * connection itself records one failure for all its runs.
 */
export function isNodesFault({ code }: DispatchError): boolean {
  return code === 'node_failed' || code === 'first_token_timeout' || code === 'token_timeout'
}

/** Statuses that concern the caller's request. All others are the node's problem. */
const CALLER_STATUSES: ReadonlySet<number> = new Set([400, 409, 413, 422])

/**
 * Returns the caller's error. Only `node_refused` contains the node's own words, which the caller
 * needs to correct the request. The node's words are not trusted, but they are printable and short.
 */
export function nodeCallErrorOf(error: DispatchError): ApiError {
  switch (error.code) {
    case 'unsupported_model':
      return new ApiError('unsupported_model', 'No node serves this model')
    case 'unsupported_dialect':
      // This message is our own. It names the paths that work.
      return new ApiError('unsupported_dialect', error.message)
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

/** Returns our own message: the caller must not see the node's words about its failing backend. */
function failureText({ status, message }: DispatchError): string {
  return status === null
    ? message
    : `The node reported that its backend failed, with status ${status}`
}

function refusalOf({ status, nodeMessage, stated }: DispatchError): ApiError {
  if (status === null || !CALLER_STATUSES.has(status))
    return new ApiError('node_error', 'The node could not serve the request')
  const words = nodeMessage === null || nodeMessage === '' ? 'no reason given' : nodeMessage
  return new ApiError('node_refused', `The node's backend refused the request: ${words}`, {
    status,
    providerCode: stated?.code ?? undefined,
    providerType: stated?.type ?? undefined,
    providerParam: stated?.param ?? undefined,
    isInStream: stated?.inStream,
  })
}
