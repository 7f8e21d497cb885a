/**
 * State of an endpoint: a socket at which an enclave is expected. Enclaves at this socket come and
 * go, each with its own key and log.
 */
export type EndpointState = {
  /** The operator's order: to serve, or to finish its calls and then be unused. */
  readonly order: 'serve' | 'drain'
  /** Whether an enclave answers at the socket. */
  readonly contact: 'unknown' | 'present' | 'lost'
  /** Notary of the enclave that answered last; null before the first. */
  readonly notary: string | null
  /** Whether this gateway accepts that enclave. */
  readonly verdict: 'unchecked' | 'accepted' | 'refused'
  /** Whether the enclave's log may contain completions for callers, so that it must be followed. */
  readonly isFollowed: boolean
  /** Whether all of that log has been committed since the last call. */
  readonly isSettled: boolean
  /** Calls in flight. */
  readonly calls: number
}

/** What happens at an endpoint. */
export type EndpointEvent =
  /** An enclave answered, and was checked. `isKnown`: its log is in the database. */
  | {
      readonly kind: 'answered'
      readonly notary: string
      readonly isAccepted: boolean
      readonly isKnown: boolean
    }
  | { readonly kind: 'lost' }
  | { readonly kind: 'ordered'; readonly order: EndpointState['order'] }
  | { readonly kind: 'call_began' }
  | { readonly kind: 'call_ended' }
  /** Everything that the notary sealed is committed. */
  | { readonly kind: 'settled'; readonly notary: string }

/**
 * How an endpoint is shown. `usable`: the only phase in which it gets calls. `draining`: it gets no
 * more calls, but its log is not settled. `drained`: its log is settled, and the enclave may be
 * ended. `refused`: this gateway does not accept the enclave at the socket. `unreachable`: no
 * enclave answers. `connecting`: no enclave has answered yet.
 */
export type EndpointPhase =
  | 'connecting'
  | 'usable'
  | 'draining'
  | 'drained'
  | 'refused'
  | 'unreachable'

/** Every phase, for lists that must be complete. */
export const ENDPOINT_PHASES: readonly EndpointPhase[] = [
  'connecting',
  'usable',
  'draining',
  'drained',
  'refused',
  'unreachable',
]

/** An endpoint about which nothing is known yet. */
export const NEW_ENDPOINT: EndpointState = {
  order: 'serve',
  contact: 'unknown',
  notary: null,
  verdict: 'unchecked',
  isFollowed: false,
  isSettled: false,
  calls: 0,
}

/** Gives the state after an event. */
export function nextEndpointState(state: EndpointState, event: EndpointEvent): EndpointState {
  const next = apply(state, event)
  if (!isUsable(next)) return next
  // From now on, its log may contain completions that callers wait for.
  return { ...next, isFollowed: true, isSettled: false }
}

function apply(state: EndpointState, event: EndpointEvent): EndpointState {
  switch (event.kind) {
    case 'answered':
      return answered(state, event)
    case 'lost':
      return { ...state, contact: 'lost' }
    case 'ordered':
      return { ...state, order: event.order }
    case 'call_began':
      return { ...state, calls: state.calls + 1 }
    case 'call_ended':
      return { ...state, calls: Math.max(0, state.calls - 1) }
    case 'settled':
      return event.notary === state.notary && state.calls === 0 && isClosed(state)
        ? { ...state, isSettled: true }
        : state
  }
}

function answered(
  state: EndpointState,
  { notary, isAccepted, isKnown }: Extract<EndpointEvent, { kind: 'answered' }>,
): EndpointState {
  const verdict = isAccepted ? 'accepted' : 'refused'
  const seen = { ...state, contact: 'present', verdict } as const
  if (notary === state.notary) return seen
  // The earlier enclave is gone, with the completions that were not fetched.
  return { ...seen, notary, isFollowed: isKnown, isSettled: false }
}

/** Whether the enclave may get calls. */
export function isUsable({ order, contact, verdict }: EndpointState): boolean {
  return order === 'serve' && contact === 'present' && verdict === 'accepted'
}

/** Gives how the endpoint is shown. */
export function phaseOf(state: EndpointState): EndpointPhase {
  const { order, contact, verdict } = state
  if (isUsable(state)) return 'usable'
  const isOpen = state.calls > 0 || (state.isFollowed && !state.isSettled)
  if (isClosed(state) && isOpen) return contact === 'lost' ? 'unreachable' : 'draining'
  if (order === 'drain') return 'drained'
  if (contact === 'lost') return 'unreachable'
  return verdict === 'refused' ? 'refused' : 'connecting'
}

/** Whether the log must be settled now: no more calls arrive, and no call is running. */
export function isToSettle(state: EndpointState): boolean {
  return (
    isClosed(state) &&
    state.contact === 'present' &&
    state.isFollowed &&
    !state.isSettled &&
    state.calls === 0
  )
}

/** Whether the log must be followed now. */
export function isToFollow({ isFollowed, isSettled }: EndpointState): boolean {
  return isFollowed && !isSettled
}

/**
 * Whether no new calls arrive, because of the operator's order or because the enclave is refused.
 */
function isClosed({ order, verdict }: EndpointState): boolean {
  return order === 'drain' || verdict === 'refused'
}
