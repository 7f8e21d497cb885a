import { type EndpointState, isUsable } from './endpoint-state.ts'

/** The facts that decide which endpoint gets a call. */
type Choosable = {
  readonly state: EndpointState
  /** Whether completions that are sealed there can be stored now. */
  readonly isCommitting: boolean
  /** When the endpoint last got a call: a count that grows. */
  readonly chosenAt: number
}

/**
 * Gives the endpoint for a call. Among usable endpoints, it prefers endpoints that can store sealed
 * completions, and among these, endpoints whose enclave has a provider for the call (`servesCall`).
 * Then it chooses the endpoint with the fewest calls in flight, and then the one that waited
 * longest. Gives null when no endpoint is usable.
 */
export function chooseEndpoint<Endpoint extends Choosable>(
  endpoints: readonly Endpoint[],
  servesCall: (endpoint: Endpoint) => boolean,
): Endpoint | null {
  const usable = endpoints.filter(({ state }) => isUsable(state))
  if (usable.length === 1) return usable[0] ?? null
  const committing = preferred(usable, ({ isCommitting }) => isCommitting)
  const serving = preferred(committing, servesCall)
  const [best] = serving.toSorted(
    (one, other) => one.state.calls - other.state.calls || one.chosenAt - other.chosenAt,
  )
  return best ?? null
}

function preferred<Endpoint>(
  endpoints: readonly Endpoint[],
  isBetter: (endpoint: Endpoint) => boolean,
): readonly Endpoint[] {
  const better = endpoints.filter(isBetter)
  return better.length > 0 ? better : endpoints
}
