/**
 * What is known of an endpoint: a socket at which an enclave is expected. Enclaves come and go
 * behind it, each with a key and a log of its own.
 */
export type EndpointState = {
  /** What the operator wants: that it serves, or that it finishes and is no longer used. */
  readonly order: 'serve' | 'drain'
  /** Whether an enclave answers there. */
  readonly contact: 'unknown' | 'present' | 'lost'
  /** Notary of the enclave that answered last; null before the first. */
  readonly notary: string | null
  /** Whether that enclave is one for this gateway. */
  readonly verdict: 'unchecked' | 'accepted' | 'refused'
  /** Whether its log may hold what was sealed for callers, so that it is to be followed. */
  readonly isFollowed: boolean
  /** Whether all of that log is committed, after the last call. */
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
  /** All that the notary sealed is committed. */
  | { readonly kind: 'settled'; readonly notary: string }

/**
 * How an endpoint is shown. `usable`: the only phase in which it gets calls. `draining`: it gets no
 * more calls, but its log is not settled. `drained`: its log is settled, and the enclave may be
 * ended. `refused`: this gateway does not accept the enclave there. `unreachable`: no enclave
 * answers. `connecting`: none has answered yet.
 */
export type EndpointPhase =
  | 'connecting'
  | 'usable'
  | 'draining'
  | 'drained'
  | 'refused'
  | 'unreachable'

/** Every phase, for lists that leave none out. */
export const ENDPOINT_PHASES: readonly EndpointPhase[] = [
  'connecting',
  'usable',
  'draining',
  'drained',
  'refused',
  'unreachable',
]

/** An endpoint of which nothing is known yet. */
export const NEW_ENDPOINT: EndpointState = {
  order: 'serve',
  contact: 'unknown',
  notary: null,
  verdict: 'unchecked',
  isFollowed: false,
  isSettled: false,
  calls: 0,
}

/** The state after an event. */
export function nextEndpointState(state: EndpointState, event: EndpointEvent): EndpointState {
  const next = apply(state, event)
  if (!isUsable(next)) return next
  // From here on its log can hold what callers wait for.
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
  // The enclave before it is gone, and with it what was not fetched.
  return { ...seen, notary, isFollowed: isKnown, isSettled: false }
}

/** Whether calls may be given to the enclave there. */
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

/** Whether the log is to be settled now: no more calls come, and none is under way. */
export function isToSettle(state: EndpointState): boolean {
  return (
    isClosed(state) &&
    state.contact === 'present' &&
    state.isFollowed &&
    !state.isSettled &&
    state.calls === 0
  )
}

/** Whether the log is to be followed now. */
export function isToFollow({ isFollowed, isSettled }: EndpointState): boolean {
  return isFollowed && !isSettled
}

/** Whether no new call comes, by the operator's will or because the enclave is refused. */
function isClosed({ order, verdict }: EndpointState): boolean {
  return order === 'drain' || verdict === 'refused'
}
