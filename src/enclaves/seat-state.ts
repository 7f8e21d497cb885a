/**
 * What is known of a seat: a socket at which an enclave is expected. Enclaves come and go behind it, each with a key and a log
 * of its own.
 */
export type SeatState = {
  /** What the operator wants: that it serves, or that it finishes and is not used any more. */
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

/** What happens at a seat. */
export type SeatEvent =
  /** An enclave answered, and was checked. `isKnown`: its log is in the database. */
  | {
      readonly kind: 'answered'
      readonly notary: string
      readonly isAccepted: boolean
      readonly isKnown: boolean
    }
  | { readonly kind: 'lost' }
  | { readonly kind: 'ordered'; readonly order: SeatState['order'] }
  | { readonly kind: 'call_began' }
  | { readonly kind: 'call_ended' }
  /** All that the notary sealed is committed. */
  | { readonly kind: 'settled'; readonly notary: string }

/**
 * How a seat is shown. `usable`: gets calls, the only one that does. `draining`: gets none any more, but its log is not
 * settled. `drained`: it is, and the enclave may be ended. `refused`: the enclave there is none for this gateway. `unreachable`:
 * none answers. `connecting`: none has answered yet.
 */
export type SeatPhase = 'connecting' | 'usable' | 'draining' | 'drained' | 'refused' | 'unreachable'

/** Every phase, for lists that leave none out. */
export const SEAT_PHASES: readonly SeatPhase[] = [
  'connecting',
  'usable',
  'draining',
  'drained',
  'refused',
  'unreachable',
]

/** A seat of which nothing is known yet. */
export const NEW_SEAT: SeatState = {
  order: 'serve',
  contact: 'unknown',
  notary: null,
  verdict: 'unchecked',
  isFollowed: false,
  isSettled: false,
  calls: 0,
}

/** The seat after an event. */
export function nextSeat(state: SeatState, event: SeatEvent): SeatState {
  const next = apply(state, event)
  if (!isUsable(next)) return next
  // From here on its log can hold what callers wait for.
  return { ...next, isFollowed: true, isSettled: false }
}

function apply(state: SeatState, event: SeatEvent): SeatState {
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
  state: SeatState,
  { notary, isAccepted, isKnown }: Extract<SeatEvent, { kind: 'answered' }>,
): SeatState {
  const verdict = isAccepted ? 'accepted' : 'refused'
  const seen = { ...state, contact: 'present', verdict } as const
  if (notary === state.notary) return seen
  // The enclave before it is gone, and with it what was not fetched.
  return { ...seen, notary, isFollowed: isKnown, isSettled: false }
}

/** Whether calls may be given to the enclave there. */
export function isUsable({ order, contact, verdict }: SeatState): boolean {
  return order === 'serve' && contact === 'present' && verdict === 'accepted'
}

/** Gives how the seat is shown. */
export function phaseOf(state: SeatState): SeatPhase {
  const { order, contact, verdict } = state
  if (isUsable(state)) return 'usable'
  const isOpen = state.calls > 0 || (state.isFollowed && !state.isSettled)
  if (isClosed(state) && isOpen) return contact === 'lost' ? 'unreachable' : 'draining'
  if (order === 'drain') return 'drained'
  if (contact === 'lost') return 'unreachable'
  return verdict === 'refused' ? 'refused' : 'connecting'
}

/** Whether the log is to be settled now: no more calls come, and none is under way. */
export function isToSettle(state: SeatState): boolean {
  return (
    isClosed(state) &&
    state.contact === 'present' &&
    state.isFollowed &&
    !state.isSettled &&
    state.calls === 0
  )
}

/** Whether the log is to be followed now. */
export function isToFollow({ isFollowed, isSettled }: SeatState): boolean {
  return isFollowed && !isSettled
}

/** Whether no new call comes, by the operator's will or because the enclave is refused. */
function isClosed({ order, verdict }: SeatState): boolean {
  return order === 'drain' || verdict === 'refused'
}
