import { isUsable, type SeatState } from './seat-state.ts'

/** What decides between seats. */
export type Choosable = {
  readonly state: SeatState
  /** Whether what is sealed there can be stored now. */
  readonly isCommitting: boolean
  /** Whether its enclave has a provider for the call. */
  readonly servesCall: boolean
  /** When a call was last given to it: a count that grows. */
  readonly chosenAt: number
}

/**
 * Gives the seat for a call: of those that are usable, one that can store what is sealed and has a provider for the call, if
 * there is one; of these one with the fewest calls in flight, and of these the one that waited longest. Null when none is usable.
 */
export function chooseSeat<Seat extends Choosable>(seats: readonly Seat[]): Seat | null {
  const usable = seats.filter(({ state }) => isUsable(state))
  const committing = preferred(usable, ({ isCommitting }) => isCommitting)
  const serving = preferred(committing, ({ servesCall }) => servesCall)
  const [best] = serving.toSorted(
    (one, other) => one.state.calls - other.state.calls || one.chosenAt - other.chosenAt,
  )
  return best ?? null
}

function preferred<Seat>(seats: readonly Seat[], isBetter: (seat: Seat) => boolean): readonly Seat[] {
  const better = seats.filter(isBetter)
  return better.length > 0 ? better : seats
}
