import {
  type Circuit,
  circuitAfterFailure,
  circuitAfterProbe,
  circuitAfterSuccess,
  circuitAtProbe,
} from './circuit.ts'
import type { NodeLimits } from './limits.ts'
import { type NodeState, type ProbeOutcome, probeState } from './node-state.ts'

/** Whether a connected node deserves work, from what it did, and when it is to be probed. */
export type Standing = {
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

export type StandingOptions = {
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

/** Standing of a node that just connected: one that is to be verified is probed at once, unless it is set aside. */
export function createStanding(options: StandingOptions): Standing {
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
      const after = outcome === 'failed' ? circuitAfterFailure(circuit, now(), limits) : circuitAfterProbe()
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
