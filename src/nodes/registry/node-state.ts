/**
 * The stored state of a node. RUNNING… means connected, STOPPED… means not connected. Only RUNNING
 * nodes get calls.
 */
export const NODE_STATES = [
  'RUNNING',
  'RUNNING_BENCHMARKING',
  'RUNNING_DEGRADED',
  'RUNNING_DISABLED',
  'STOPPED',
  'STOPPED_BENCHMARK_FAILED',
  'STOPPED_DEGRADED',
  'STOPPED_DISABLED',
] as const

export type NodeState = (typeof NODE_STATES)[number]

export type ProbeOutcome = 'healthy' | 'slow' | 'failed'

/**
 * Returns a connecting node's state from its stored state, which is null for a node that never
 * connected. A stored RUNNING… counts as stopped, because a killed gateway stores no stop.
 */
export function startState(state: NodeState | null): NodeState {
  switch (state) {
    case 'RUNNING':
    case 'STOPPED':
      return 'RUNNING'
    case 'RUNNING_DISABLED':
    case 'STOPPED_DISABLED':
      return 'RUNNING_DISABLED'
    case null:
    case 'RUNNING_BENCHMARKING':
    case 'RUNNING_DEGRADED':
    case 'STOPPED_BENCHMARK_FAILED':
    case 'STOPPED_DEGRADED':
      return 'RUNNING_BENCHMARKING'
  }
}

export function stopState(state: NodeState): NodeState {
  switch (state) {
    case 'RUNNING':
      return 'STOPPED'
    case 'RUNNING_BENCHMARKING':
      return 'STOPPED_BENCHMARK_FAILED'
    case 'RUNNING_DEGRADED':
      return 'STOPPED_DEGRADED'
    case 'RUNNING_DISABLED':
      return 'STOPPED_DISABLED'
    default:
      return state
  }
}

/**
 * After a failed probe, a RUNNING_BENCHMARKING node keeps its state and is probed again. Only the
 * operator changes a disabled node.
 */
export function probeState(state: NodeState, outcome: ProbeOutcome): NodeState {
  if (!isProbed(state)) return state
  if (outcome === 'healthy') return 'RUNNING'
  if (outcome === 'failed' && state === 'RUNNING_BENCHMARKING') return state
  return 'RUNNING_DEGRADED'
}

export function isProbed(state: NodeState): boolean {
  return state === 'RUNNING' || state === 'RUNNING_BENCHMARKING' || state === 'RUNNING_DEGRADED'
}

/** The texts come from the documentation of the public node client. */
export function statusText(state: NodeState | null): string {
  switch (state) {
    case 'RUNNING':
      return 'Running'
    case 'RUNNING_BENCHMARKING':
      return 'Running - verifying performance'
    case 'RUNNING_DEGRADED':
      return 'Running - performance degraded'
    // A disabled node may be connected, but gets no calls. The documentation has no text for it.
    case 'RUNNING_DISABLED':
    case 'STOPPED':
    case 'STOPPED_BENCHMARK_FAILED':
    case 'STOPPED_DEGRADED':
    case 'STOPPED_DISABLED':
    case null:
      return 'Stopped'
  }
}

export function isNodeState(text: string): text is NodeState {
  return NODE_STATES.some((state) => state === text)
}
