import { type EndpointState, isUsable } from './endpoint-state.ts'

type Choosable = {
  readonly state: EndpointState
  /** True if completions that this endpoint's enclave seals can be stored now. */
  readonly isCommitting: boolean
  /** Number of the endpoint's last call. The number grows with each call. */
  readonly chosenAt: number
}

/**
 * Prefers endpoints that can store sealed completions, then enclaves with a provider for the call
 * (`servesCall`), then the fewest calls in flight, then the longest wait. Null if no endpoint is
 * usable.
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
