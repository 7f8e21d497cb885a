/**
 * Whether a node is given work. `closed`: yes. `open`: it failed too often in a row and is set aside; at `retryAtMs` it is
 * probed. `probing`: that probe is under way, and decides.
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

/** After a run or probe that failed. A late failure of a node that is already set aside changes nothing. */
export function circuitAfterFailure(circuit: Circuit, nowMs: number, limits: CircuitLimits): Circuit {
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
 * After a run that succeeded. Runs that began before the node was set aside may still end well; only the probe brings
 * it back, because they may be what is left of better times.
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
