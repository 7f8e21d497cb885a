import { DispatchError } from './dispatcher.ts'
import type { NodeFault } from './frames.ts'

/** The error for a caller of a run that its node says has failed. */
export function faultError(fault: NodeFault | null): DispatchError {
  const status = fault?.statusCode ?? 500
  const nodeMessage = fault === null || fault.message === '' ? null : fault.message
  const retryAfterSeconds = fault?.retryAfterSeconds ?? null
  if (status === BUSY)
    return new DispatchError('node_busy', "The node's backend takes no more at the moment", {
      ...{ status, nodeMessage, retryAfterSeconds },
    })
  return CALLER_FAULTS.has(status)
    ? new DispatchError('node_refused', "The node's backend refused the request", { status, nodeMessage })
    : new DispatchError('node_failed', "The node's backend failed", { status, nodeMessage })
}

const BUSY = 429

/** Status codes that blame the request, and not the node's backend, its configuration or its load. */
const CALLER_FAULTS: ReadonlySet<number> = new Set([400, 422])

/** The error of a run whose connection ended. */
export function lostError(): DispatchError {
  return new DispatchError('node_lost', 'The connection to the node ended')
}
