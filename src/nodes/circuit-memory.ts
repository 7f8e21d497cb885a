import { type Circuit, CLOSED_CIRCUIT } from './circuit.ts'

/** How many nodes are remembered; beyond it the one that is remembered longest is forgotten. */
export const REMEMBERED_MAX = 10_000

/** Circuits of nodes that are not connected: dialling again makes nothing good. Lasts as long as this process. */
export type CircuitMemory = {
  /** What a node that connects begins with. */
  recall(nodeId: string): Circuit
  /** Keeps the circuit of a node that goes. */
  keep(nodeId: string, circuit: Circuit, nowMs: number): void
  size(): number
}

/** A memory of nobody. Nodes in good standing take no room in it. */
export function createCircuitMemory(): CircuitMemory {
  const circuits = new Map<string, Circuit>()
  return {
    recall: (nodeId) => circuits.get(nodeId) ?? CLOSED_CIRCUIT,
    keep(nodeId, circuit, nowMs) {
      circuits.delete(nodeId)
      if (circuit.kind === 'closed' && circuit.failures === 0) return
      circuits.set(nodeId, unprobed(circuit, nowMs))
      const [oldest] = circuits.keys()
      if (circuits.size > REMEMBERED_MAX && oldest !== undefined) circuits.delete(oldest)
    },
    size: () => circuits.size,
  }
}

/** A probe that was cut short decides nothing. */
function unprobed(circuit: Circuit, nowMs: number): Circuit {
  if (circuit.kind !== 'probing') return circuit
  return { kind: 'open', retryAtMs: nowMs + circuit.asideMs, asideMs: circuit.asideMs }
}
