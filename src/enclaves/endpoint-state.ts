/** An endpoint is a socket at which an enclave is expected. The enclave may be replaced. */
export type EndpointState = {
  /** The operator's order. `drain`: the endpoint only finishes its calls. */
  readonly order: 'serve' | 'drain'
  /** States whether an enclave answers at the socket. */
  readonly contact: 'unknown' | 'present' | 'lost'
  /** The notary of the enclave that answered last. */
  readonly notary: string | null
  /** States whether this gateway accepts the enclave that answered last. */
  readonly verdict: 'unchecked' | 'accepted' | 'refused'
  /** True once callers may wait for completions in the log. This gateway then commits the log. */
  readonly isFollowed: boolean
  /** True if the whole log was committed after the last call. */
  readonly isSettled: boolean
  /** Calls in flight. */
  readonly calls: number
}

export type EndpointEvent =
  /** `isKnown`: the log of the checked enclave is in the database. */
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
  /** All sealed completions of the notary's enclave are committed. */
  | { readonly kind: 'settled'; readonly notary: string }

/**
 * `usable`: the only phase in which the endpoint gets calls. `draining`: calls run, or a part of
 * the log is not committed. `drained`: the enclave may be ended. `refused`: this gateway does not
 * accept the enclave. `unreachable`: no enclave answers. `connecting`: no enclave has answered yet.
 */
export type EndpointPhase =
  | 'connecting'
  | 'usable'
  | 'draining'
  | 'drained'
  | 'refused'
  | 'unreachable'

export const ENDPOINT_PHASES: readonly EndpointPhase[] = [
  'connecting',
  'usable',
  'draining',
  'drained',
  'refused',
  'unreachable',
]

export const NEW_ENDPOINT: EndpointState = {
  order: 'serve',
  contact: 'unknown',
  notary: null,
  verdict: 'unchecked',
  isFollowed: false,
  isSettled: false,
  calls: 0,
}

export function nextEndpointState(state: EndpointState, event: EndpointEvent): EndpointState {
  const next = apply(state, event)
  if (!isUsable(next)) return next
  // From now on, callers may wait for completions in the log.
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
  // The earlier enclave has ended. Its completions that this gateway did not pull are lost.
  return { ...seen, notary, isFollowed: isKnown, isSettled: false }
}

export function isUsable({ order, contact, verdict }: EndpointState): boolean {
  return order === 'serve' && contact === 'present' && verdict === 'accepted'
}

export function phaseOf(state: EndpointState): EndpointPhase {
  const { order, contact, verdict } = state
  if (isUsable(state)) return 'usable'
  const isOpen = state.calls > 0 || (state.isFollowed && !state.isSettled)
  if (isClosed(state) && isOpen) return contact === 'lost' ? 'unreachable' : 'draining'
  if (order === 'drain') return 'drained'
  if (contact === 'lost') return 'unreachable'
  return verdict === 'refused' ? 'refused' : 'connecting'
}

/** True if the rest of the log can be committed now: no call runs, and no new call will come. */
export function isToSettle(state: EndpointState): boolean {
  return (
    isClosed(state) &&
    state.contact === 'present' &&
    state.isFollowed &&
    !state.isSettled &&
    state.calls === 0
  )
}

export function isToFollow({ isFollowed, isSettled }: EndpointState): boolean {
  return isFollowed && !isSettled
}

/** True if no new calls arrive. */
function isClosed({ order, verdict }: EndpointState): boolean {
  return order === 'drain' || verdict === 'refused'
}
