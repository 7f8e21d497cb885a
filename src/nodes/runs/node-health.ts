import { LruMap } from '../../runtime/lru-map.ts'
import { type NodeState, type ProbeOutcome, probeState } from '../registry/node-state.ts'
import type { NodeLimits } from './limits.ts'

/**
 * Uses the results of a connected node's calls and probes to decide whether the node gets calls. It
 * also decides when the node is probed. Each model of the node is judged separately: a node may
 * fail with one model and work with another.
 */
export type NodeHealth = {
  state(): NodeState
  /** By model. */
  circuits(): ReadonlyMap<string, Circuit>
  /**
   * Whether the node is RUNNING and the model is not set aside. Without a model: whether any model
   * is not set aside.
   */
  isServing(model?: string): boolean
  /** A run ended with a full answer. */
  succeeded(model: string): void
  /** A run failed because of the node. */
  failed(model: string): void
  /**
   * Reports a run that ended with an error that the request may have caused, or with an answer that
   * the gateway refused. One such run has no effect. After several in a row, a probe decides.
   */
  refused(model: string): void
  /** The model whose probe is due; null when no probe is due. */
  dueProbe(): string | null
  probeBegins(model: string): void
  probeEnds(outcome: ProbeOutcome): void
  /** The probe had no result, because the node is busy or has left. It is repeated later. */
  probePutOff(): void
}

type NodeHealthOptions = {
  /** The state it connects with. */
  readonly state: NodeState
  /** The node's models, each with its circuit at the end of the node's last connection. */
  readonly circuits: ReadonlyMap<string, Circuit>
  readonly limits: NodeLimits
  readonly now: () => number
  readonly random: () => number
  /** Called after every change. `isNewState` is true when the state changed. */
  readonly onChange: (isNewState: boolean) => void
}

/**
 * Health of a node that just connected. A node that must be verified is probed immediately, unless
 * it is set aside.
 */
export function createNodeHealth(options: NodeHealthOptions): NodeHealth {
  const { limits, now, random, onChange } = options
  const circuits = new Map(options.circuits)
  const refusals = new Map<string, number>()
  let state = options.state
  /** The model of the probe under way. */
  let probing: string | null = null
  /** A probe that was put off is not due before this time. */
  let quietUntilMs = 0
  /**
   * When the next regular probe is due, and its model; null: the first model. Models that are set
   * aside are not included.
   */
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
      // A served call shows more than a probe, so the next probe is later.
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
      // While other models of the node work, the failure counts only for this model.
      const isModels = outcome === 'failed' && closedModels().some((other) => other !== model)
      const before = circuitOf(model)
      const circuit =
        outcome !== 'failed'
          ? circuitAfterProbe()
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
      // An interrupted probe has no result.
      if (probing !== null) circuits.set(probing, unprobed(circuitOf(probing), now()))
      probing = null
    },
  }
}

function isProbed(state: NodeState): boolean {
  return state === 'RUNNING' || state === 'RUNNING_BENCHMARKING' || state === 'RUNNING_DEGRADED'
}

/**
 * Whether a node gets calls for one of its models. `closed`: yes. `open`: the node failed too often
 * in a row and is set aside; it is probed at `retryAtMs`. `probing`: this probe is under way and
 * decides.
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

/** The circuit of a new node. */
export const CLOSED_CIRCUIT: Circuit = { kind: 'closed', failures: 0 }

/**
 * The circuit after a run or probe that failed. If the node is already set aside, a late failure
 * has no effect.
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
      return setAside(nowMs, limits.asideMs)
    }
  }
}

function setAside(nowMs: number, asideMs: number): Circuit {
  return { kind: 'open', retryAtMs: nowMs + asideMs, asideMs }
}

/**
 * The circuit after a run that succeeded. A run that began before the node was set aside may still
 * succeed, but only a probe ends this state.
 */
export function circuitAfterSuccess(circuit: Circuit): Circuit {
  return circuit.kind === 'closed' ? CLOSED_CIRCUIT : circuit
}

/** The circuit when the probe begins. */
export function circuitAtProbe(circuit: Circuit): Circuit {
  return circuit.kind === 'open' ? { kind: 'probing', asideMs: circuit.asideMs } : circuit
}

/** The circuit after a probe that succeeded. The node gets calls again, in every case. */
export function circuitAfterProbe(): Circuit {
  return CLOSED_CIRCUIT
}

/** How many circuits are remembered. Beyond this, the least recently used circuit is removed. */
export const REMEMBERED_MAX = 10_000

/**
 * Circuits of nodes that are not connected, so that a new connection does not reset them. The
 * memory lasts as long as this process.
 */
type CircuitMemory = {
  /** Gives the circuits with which a connecting node begins, by model. */
  recall(nodeId: string, models: readonly string[]): ReadonlyMap<string, Circuit>
  /** Keeps the circuits of a node that disconnects. */
  keep(nodeId: string, circuits: ReadonlyMap<string, Circuit>, nowMs: number): void
  size(): number
}

/** Creates an empty memory. Healthy nodes use no space in it. */
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
