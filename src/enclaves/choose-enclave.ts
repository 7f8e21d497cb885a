import { type EndpointState, isUsable } from './endpoint-state.ts'

/** What decides between endpoints. */
type Choosable = {
  readonly state: EndpointState
  /** Whether what is sealed there can be stored now. */
  readonly isCommitting: boolean
  /** When a call was last given to it: a count that grows. */
  readonly chosenAt: number
}

/**
 * Gives the endpoint for a call. Of the usable ones, it prefers an endpoint that can store what is
 * sealed and, by `servesCall`, whose enclave has a provider for the call; of these the one with the
 * fewest calls in flight, and then the one that waited longest. Null when none is usable.
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
