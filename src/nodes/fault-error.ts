import { DispatchError } from './dispatcher.ts'
import type { NodeFault } from './frames.ts'

/** The error for a caller of a run that its node says has failed. */
export function faultError(fault: NodeFault | null): DispatchError {
  const status = fault?.statusCode ?? 500
  const nodeMessage = fault === null || fault.message === '' ? null : fault.message
  return CALLER_FAULTS.has(status)
    ? new DispatchError('node_refused', "The node's backend refused the request", { status, nodeMessage })
    : new DispatchError('node_failed', "The node's backend failed", { status, nodeMessage })
}

/** Status codes that blame the request, and not the node's backend, its configuration or its load. */
const CALLER_FAULTS: ReadonlySet<number> = new Set([400, 422])
