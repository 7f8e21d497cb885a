import { LruMap } from '../../runtime/lru-map.ts'
import { isProbed, type NodeState, type ProbeOutcome, probeState } from '../registry/node-state.ts'
import type { NodeLimits } from './limits.ts'

/**
 * Decides whether a connected node gets calls, and when it is probed. Each model counts separately,
 * because a node may fail with one model and work with another.
 */
export type NodeHealth = {
  state(): NodeState
  /** By model. */
  circuits(): ReadonlyMap<string, Circuit>
  /** True if the node is RUNNING and the model (default: any model) is not set aside. */
  isServing(model?: string): boolean
  succeeded(model: string): void
  failed(model: string): void
  /**
   * Records an error that the request may have caused, or an answer that the gateway refused. After
   * several of these in a row, the model is probed.
   */
  refused(model: string): void
  /** The model whose probe is due. */
  dueProbe(): string | null
  probeBegins(model: string): void
  probeEnds(outcome: ProbeOutcome): void
  /** Ends a probe without a result (the node is busy or has left). It is repeated later. */
  probePutOff(): void
}

type NodeHealthOptions = {
  /** At the start of the connection. */
  readonly state: NodeState
  /** For each of the node's models: the circuit at the end of the node's last connection. */
  readonly circuits: ReadonlyMap<string, Circuit>
  readonly limits: NodeLimits
  readonly now: () => number
  readonly random: () => number
  /** Called after every change. `isNewState` is true if the state changed. */
  readonly onChange: (isNewState: boolean) => void
}

/** A node that must be verified is probed immediately, unless it is set aside. */
export function createNodeHealth(options: NodeHealthOptions): NodeHealth {
  const { limits, now, random, onChange } = options
  const circuits = new Map(options.circuits)
  const refusals = new Map<string, number>()
  let state = options.state
  let probing: string | null = null
  /** After a probe without result, no probe is due before this time. */
  let quietUntilMs = 0
  /** The next regular probe. A null model means the first model that is not set aside. */
  let next: { readonly atMs: number; readonly model: string | null } = {
    atMs: state === 'RUNNING_BENCHMARKING' ? now() : regularProbeMs(),
    model: null,
  }

  function regularProbeMs(): number {
    return now() + limits.probeIntervalMs * (0.5 + random() / 2)
  }

  const circuitOf = (model: string) => circuits.get(model) ?? CLOSED_CIRCUIT
  const isClosed = (model: string) => circuitOf(model).kind === 'closed'
  const closedModels = () => [...circuits.keys()].filter(isClosed)

  function become(nextState: NodeState, model: string, circuit: Circuit): void {
    const isNewState = nextState !== state
    const isChanged = isNewState || circuit.kind !== circuitOf(model).kind
    state = nextState
    circuits.set(model, circuit)
    if (isChanged) onChange(isNewState)
  }

  return {
    state: () => state,
    circuits: () => circuits,
    isServing: (model) =>
      state === 'RUNNING' && (model === undefined ? closedModels().length > 0 : isClosed(model)),
    succeeded(model) {
      refusals.delete(model)
      // A served call shows more about the node than a probe, so the next probe is postponed.
      if (state === 'RUNNING' && isClosed(model)) next = { atMs: regularProbeMs(), model: null }
      become(state, model, circuitAfterSuccess(circuitOf(model)))
    },
    failed: (model) => become(state, model, circuitAfterFailure(circuitOf(model), now(), limits)),
    refused(model) {
      const count = (refusals.get(model) ?? 0) + 1
      refusals.set(model, count)
      if (count >= limits.refusalsMax && isClosed(model)) next = { atMs: now(), model }
    },
    dueProbe() {
      if (probing !== null || now() < quietUntilMs || !isProbed(state)) return null
      for (const [model, circuit] of circuits)
        if (circuit.kind === 'open' && now() >= circuit.retryAtMs) return model
      if (now() < next.atMs) return null
      const closed = closedModels()
      return closed.find((model) => model === next.model) ?? closed[0] ?? null
    },
    probeBegins(model) {
      probing = model
      refusals.delete(model)
      become(state, model, circuitAtProbe(circuitOf(model)))
    },
    probeEnds(outcome) {
      const model = probing
      if (model === null) return
      probing = null
      // The failure counts only for this model while other models of the node work.
      const isModels = outcome === 'failed' && closedModels().some((other) => other !== model)
      const before = circuitOf(model)
      const circuit =
        outcome !== 'failed'
          ? CLOSED_CIRCUIT
          : isModels && before.kind === 'closed'
            ? setAside(now(), limits.asideMs)
            : circuitAfterFailure(before, now(), limits)
      const nextState = isModels ? state : probeState(state, outcome)
      const isRunning = nextState === 'RUNNING'
      next = { atMs: isRunning ? regularProbeMs() : now() + limits.probeRetryMs, model: null }
      become(nextState, model, circuit)
    },
    probePutOff() {
      quietUntilMs = now() + limits.probeRetryMs
      if (probing !== null) circuits.set(probing, unprobed(circuitOf(probing), now()))
      probing = null
    },
  }
}

/**
 * Decides whether a node gets calls for one of its models. `closed`: the node gets calls. `open`:
 * the node failed too often in a row, is set aside, and is probed at `retryAtMs`. `probing`: a
 * probe runs, and its result closes or opens the circuit.
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

export const CLOSED_CIRCUIT: Circuit = { kind: 'closed', failures: 0 }

/** Leaves an `open` circuit unchanged, because the failed run is older than the circuit. */
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
      return setAside(nowMs, limits.asideMs)
    }
  }
}

function setAside(nowMs: number, asideMs: number): Circuit {
  return { kind: 'open', retryAtMs: nowMs + asideMs, asideMs }
}

/** Leaves a circuit that is not `closed` unchanged, because only a probe can close it. */
export function circuitAfterSuccess(circuit: Circuit): Circuit {
  return circuit.kind === 'closed' ? CLOSED_CIRCUIT : circuit
}

export function circuitAtProbe(circuit: Circuit): Circuit {
  return circuit.kind === 'open' ? { kind: 'probing', asideMs: circuit.asideMs } : circuit
}

/** The least recently used circuit is removed first. */
export const REMEMBERED_MAX = 10_000

/** Keeps the circuits of disconnected nodes, so that a new connection does not reset them. */
type CircuitMemory = {
  recall(nodeId: string, models: readonly string[]): ReadonlyMap<string, Circuit>
  keep(nodeId: string, circuits: ReadonlyMap<string, Circuit>, nowMs: number): void
  size(): number
}

/** Stores only circuits with failures. */
export function createCircuitMemory(): CircuitMemory {
  const circuits = new LruMap<string, Circuit>(REMEMBERED_MAX)
  const keyOf = (nodeId: string, model: string) => `${nodeId} ${model}`
  return {
    recall: (nodeId, models) =>
      new Map(models.map((model) => [model, circuits.get(keyOf(nodeId, model)) ?? CLOSED_CIRCUIT])),
    keep(nodeId, left, nowMs) {
      for (const [model, circuit] of left) {
        const key = keyOf(nodeId, model)
        circuits.delete(key)
        if (circuit.kind !== 'closed' || circuit.failures > 0)
          circuits.set(key, unprobed(circuit, nowMs))
      }
    },
    size: () => circuits.size,
  }
}

/** An interrupted probe has no result, so the model is probed again later. */
function unprobed(circuit: Circuit, nowMs: number): Circuit {
  if (circuit.kind !== 'probing') return circuit
  return { kind: 'open', retryAtMs: nowMs + circuit.asideMs, asideMs: circuit.asideMs }
}
