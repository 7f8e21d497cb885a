import { LruMap } from '../runtime/lru-map.ts'
import type { NodeLimits } from './limits.ts'
import { type NodeState, type ProbeOutcome, probeState } from './node-state.ts'

/** Whether a connected node deserves work, from what it did, and when it is to be probed. */
export type NodeHealth = {
  state(): NodeState
  circuit(): Circuit
  /** Whether it is given work at all: RUNNING, and not set aside. */
  isServing(): boolean
  /** A run was answered to its end. */
  succeeded(): void
  /** A run failed through the node. */
  failed(): void
  /**
   * The node told an error that the request may have caused. Once that is nothing; again and again
   * it is for a probe to say.
   */
  refused(): void
  isProbeDue(): boolean
  probeBegins(): void
  probeEnds(outcome: ProbeOutcome): void
  /** The probe showed nothing, because the node is busy or gone: later. */
  probePutOff(): void
}

type NodeHealthOptions = {
  /** The state it connects with. */
  readonly state: NodeState
  /** What its last connection left behind. */
  readonly circuit: Circuit
  readonly limits: NodeLimits
  readonly now: () => number
  readonly random: () => number
  /** Told after every change; `isNewState` when the state is another. */
  readonly onChange: (isNewState: boolean) => void
}

/**
 * Health of a node that just connected: one that is to be verified is probed at once, unless it is
 * set aside.
 */
export function createNodeHealth(options: NodeHealthOptions): NodeHealth {
  const { limits, now, random, onChange } = options
  let state = options.state
  let circuit = options.circuit
  let refusals = 0
  let isProbing = false
  let probeAtMs = firstProbe()

  function firstProbe(): number {
    if (circuit.kind === 'open') return circuit.retryAtMs
    return state === 'RUNNING_BENCHMARKING' ? now() : nextRegularProbe()
  }

  function nextRegularProbe(): number {
    return now() + limits.probeIntervalMs * (0.5 + random() / 2)
  }

  function become(nextState: NodeState, nextCircuit: Circuit): void {
    const isNewState = nextState !== state
    const isChanged = isNewState || nextCircuit.kind !== circuit.kind
    state = nextState
    circuit = nextCircuit
    if (circuit.kind === 'open') probeAtMs = circuit.retryAtMs
    if (isChanged) onChange(isNewState)
  }

  return {
    state: () => state,
    circuit: () => circuit,
    isServing: () => state === 'RUNNING' && circuit.kind === 'closed',
    succeeded() {
      refusals = 0
      // What it serves shows more than a probe would.
      if (state === 'RUNNING' && circuit.kind === 'closed') probeAtMs = nextRegularProbe()
      become(state, circuitAfterSuccess(circuit))
    },
    failed: () => become(state, circuitAfterFailure(circuit, now(), limits)),
    refused() {
      refusals++
      if (refusals >= limits.refusalsMax && circuit.kind === 'closed') probeAtMs = now()
    },
    isProbeDue: () => !isProbing && now() >= probeAtMs && isProbed(state),
    probeBegins() {
      isProbing = true
      refusals = 0
      become(state, circuitAtProbe(circuit))
    },
    probeEnds(outcome) {
      isProbing = false
      const after =
        outcome === 'failed' ? circuitAfterFailure(circuit, now(), limits) : circuitAfterProbe()
      const next = probeState(state, outcome)
      probeAtMs = next === 'RUNNING' ? nextRegularProbe() : now() + limits.probeRetryMs
      become(next, after)
    },
    probePutOff() {
      isProbing = false
      probeAtMs = now() + limits.probeRetryMs
    },
  }
}

function isProbed(state: NodeState): boolean {
  return state === 'RUNNING' || state === 'RUNNING_BENCHMARKING' || state === 'RUNNING_DEGRADED'
}

/**
 * Whether a node is given work. `closed`: yes. `open`: it failed too often in a row and is set
 * aside; at `retryAtMs` it is probed. `probing`: that probe is under way, and decides.
 */
export type Circuit =
  | { readonly kind: 'closed'; readonly failures: number }
  | { readonly kind: 'open'; readonly retryAtMs: number; readonly asideMs: number }
  | { readonly kind: 'probing'; readonly asideMs: number }

type CircuitLimits = {
  readonly failuresMax: number
  readonly asideMs: number
  readonly asideMaxMs: number
}

/** What a new node begins with. */
export const CLOSED_CIRCUIT: Circuit = { kind: 'closed', failures: 0 }

/**
 * After a run or probe that failed. A late failure of a node that is already set aside changes
 * nothing.
 */
export function circuitAfterFailure(
  circuit: Circuit,
  nowMs: number,
  limits: CircuitLimits,
): Circuit {
  switch (circuit.kind) {
    case 'open':
      return circuit
    case 'probing': {
      const asideMs = Math.min(circuit.asideMs * 2, limits.asideMaxMs)
      return { kind: 'open', retryAtMs: nowMs + asideMs, asideMs }
    }
    case 'closed': {
      const failures = circuit.failures + 1
      if (failures < limits.failuresMax) return { kind: 'closed', failures }
      return { kind: 'open', retryAtMs: nowMs + limits.asideMs, asideMs: limits.asideMs }
    }
  }
}

/**
 * After a run that succeeded. Runs that began before the node was set aside may still end well;
 * only the probe brings it back, because they may be what is left of better times.
 */
export function circuitAfterSuccess(circuit: Circuit): Circuit {
  return circuit.kind === 'closed' ? CLOSED_CIRCUIT : circuit
}

/** When the probe begins. */
export function circuitAtProbe(circuit: Circuit): Circuit {
  return circuit.kind === 'open' ? { kind: 'probing', asideMs: circuit.asideMs } : circuit
}

/** After a probe that succeeded: whatever was before, the node is given work again. */
export function circuitAfterProbe(): Circuit {
  return CLOSED_CIRCUIT
}

/** How many nodes are remembered; beyond it the one that was longest not looked at is forgotten. */
export const REMEMBERED_MAX = 10_000

/**
 * Circuits of nodes that are not connected: dialling again makes nothing good. Lasts as long as
 * this process.
 */
type CircuitMemory = {
  /** What a node that connects begins with. */
  recall(nodeId: string): Circuit
  /** Keeps the circuit of a node that goes. */
  keep(nodeId: string, circuit: Circuit, nowMs: number): void
  size(): number
}

/** A memory of nobody. Healthy nodes take no room in it. */
export function createCircuitMemory(): CircuitMemory {
  const circuits = new LruMap<string, Circuit>(REMEMBERED_MAX)
  return {
    recall: (nodeId) => circuits.get(nodeId) ?? CLOSED_CIRCUIT,
    keep(nodeId, circuit, nowMs) {
      circuits.delete(nodeId)
      if (circuit.kind === 'closed' && circuit.failures === 0) return
      circuits.set(nodeId, unprobed(circuit, nowMs))
    },
    size: () => circuits.size,
  }
}

/** A probe that was cut short decides nothing. */
function unprobed(circuit: Circuit, nowMs: number): Circuit {
  if (circuit.kind !== 'probing') return circuit
  return { kind: 'open', retryAtMs: nowMs + circuit.asideMs, asideMs: circuit.asideMs }
}
