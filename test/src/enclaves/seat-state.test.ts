import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chooseSeat } from '../../../src/enclaves/choose-seat.ts'
import {
  isToFollow,
  isToSettle,
  isUsable,
  NEW_SEAT,
  nextSeat,
  phaseOf,
  SEAT_PHASES,
  type SeatEvent,
  type SeatState,
} from '../../../src/enclaves/seat-state.ts'

const answered = (notary: string, isAccepted = true, isKnown = false): SeatEvent => ({
  kind: 'answered',
  notary,
  isAccepted,
  isKnown,
})
const order = (what: SeatState['order']): SeatEvent => ({ kind: 'ordered', order: what })
const seatAfter = (...events: readonly SeatEvent[]) => events.reduce(nextSeat, NEW_SEAT)
const phaseAfter = (...events: readonly SeatEvent[]) => phaseOf(seatAfter(...events))

describe('a seat', () => {
  it.each<readonly [string, readonly SeatEvent[]]>([
    ['connecting', []],
    ['unreachable', [{ kind: 'lost' }]],
    ['usable', [answered('a')]],
    ['refused', [answered('a', false)]],
    ['unreachable', [answered('a'), { kind: 'lost' }]],
    ['usable', [answered('a'), { kind: 'lost' }, answered('a')]],
    ['draining', [answered('a'), order('drain')]],
    ['draining', [answered('a'), { kind: 'call_began' }, order('drain')]],
    ['unreachable', [answered('a'), order('drain'), { kind: 'lost' }]],
    ['drained', [answered('a'), order('drain'), { kind: 'settled', notary: 'a' }]],
    ['drained', [answered('a'), order('drain'), { kind: 'settled', notary: 'a' }, { kind: 'lost' }]],
    ['drained', [order('drain')]],
    ['drained', [order('drain'), answered('a')]],
    ['usable', [answered('a'), order('drain'), { kind: 'settled', notary: 'a' }, order('serve')]],
    ['drained', [answered('a'), order('drain'), { kind: 'settled', notary: 'a' }, answered('b')]],
    // Its release ended while it was in use.
    ['draining', [answered('a'), answered('a', false)]],
    ['refused', [answered('a'), answered('a', false), { kind: 'settled', notary: 'a' }]],
    ['usable', [answered('a'), answered('a', false), { kind: 'settled', notary: 'a' }, answered('a')]],
    // One that a gateway before this one used may hold what callers wait for.
    ['draining', [answered('a', false, true)]],
    // Another enclave restarted behind the same socket.
    ['usable', [answered('a'), answered('b')]],
    ['refused', [answered('a'), answered('b', false)]],
  ])('is %s after %j', (phase, events) => {
    expect(phaseAfter(...events)).toBe(phase)
  })

  it('does not count as settled while a call runs, for another notary, or while it serves', () => {
    const settled: SeatEvent = { kind: 'settled', notary: 'a' }
    expect(seatAfter(answered('a'), { kind: 'call_began' }, order('drain'), settled).isSettled).toBe(false)
    expect(seatAfter(answered('a'), order('drain'), { kind: 'settled', notary: 'b' }).isSettled).toBe(false)
    expect(seatAfter(answered('a'), settled).isSettled).toBe(false)
  })

  it('is settled only when no call runs, and its enclave answers', () => {
    const draining = seatAfter(answered('a'), { kind: 'call_began' }, order('drain'))
    expect(isToSettle(draining)).toBe(false)
    expect(isToSettle(nextSeat(draining, { kind: 'call_ended' }))).toBe(true)
    expect(isToSettle(seatAfter(answered('a'), order('drain'), { kind: 'lost' }))).toBe(false)
    expect(isToSettle(seatAfter(order('drain'), answered('a')))).toBe(false)
  })

  it('is followed from its first acceptance until it is settled, whatever is accepted later', () => {
    const refusedLater = seatAfter(answered('a'), answered('a', false))
    expect(isToFollow(refusedLater)).toBe(true)
    expect(isToFollow(nextSeat(refusedLater, { kind: 'settled', notary: 'a' }))).toBe(false)
    expect(isToFollow(seatAfter(answered('a', false)))).toBe(false)
    expect(isToFollow(seatAfter(answered('a'), answered('b', false)))).toBe(false)
  })
})

const notary = fc.constantFrom('a', 'b', 'c')
const event: fc.Arbitrary<SeatEvent> = fc.oneof(
  fc.record({
    kind: fc.constant('answered' as const),
    notary,
    isAccepted: fc.boolean(),
    isKnown: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('lost' as const) }),
  fc.record({
    kind: fc.constant('ordered' as const),
    order: fc.constantFrom('serve' as const, 'drain' as const),
  }),
  fc.record({ kind: fc.constant('settled' as const), notary }),
)

/** What the operator and the network last said of a seat, kept apart from the state machine. */
function isServing(events: readonly SeatEvent[]): boolean {
  const lastOrder = events.findLast(({ kind }) => kind === 'ordered')
  const lastContact = events.findLast(({ kind }) => kind === 'answered' || kind === 'lost')
  return (
    (lastOrder?.kind !== 'ordered' || lastOrder.order === 'serve') &&
    lastContact?.kind === 'answered' &&
    lastContact.isAccepted
  )
}

type Step =
  | { readonly kind: 'event'; readonly seat: number; readonly event: SeatEvent }
  | { readonly kind: 'call' }
  | { readonly kind: 'end'; readonly call: number }

const SEATS = 3
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('event' as const), seat: fc.nat(SEATS - 1), event }),
  fc.record({ kind: fc.constant('call' as const) }),
  fc.record({ kind: fc.constant('end' as const), call: fc.nat() }),
)

/** Gateway and callers: calls are chosen a seat, and end in any order. */
class Stage {
  readonly seats: SeatState[] = Array.from({ length: SEATS }, () => NEW_SEAT)
  readonly history: SeatEvent[][] = Array.from({ length: SEATS }, () => [])
  readonly chosenAt: number[] = Array.from({ length: SEATS }, () => 0)
  readonly running: number[] = []
  private count = 0

  tell(seat: number, told: SeatEvent): void {
    this.seats[seat] = nextSeat(this.seats[seat] ?? NEW_SEAT, told)
    this.history[seat]?.push(told)
  }

  /** The seat of a new call. */
  call(): number | null {
    const choices = this.seats.map((state, index) => ({
      ...{ index, state, chosenAt: this.chosenAt[index] ?? 0 },
      ...{ isCommitting: true, servesCall: true },
    }))
    const chosen = chooseSeat(choices)?.index ?? null
    if (chosen === null) return null
    this.count += 1
    this.chosenAt[chosen] = this.count
    this.running.push(chosen)
    this.tell(chosen, { kind: 'call_began' })
    return chosen
  }

  end(call: number): void {
    const [seat] = this.running.splice(call % Math.max(1, this.running.length), 1)
    if (seat !== undefined) this.tell(seat, { kind: 'call_ended' })
  }

  play(given: Step): number | null {
    if (given.kind === 'call') return this.call()
    if (given.kind === 'event') this.tell(given.seat, given.event)
    else this.end(given.call)
    return null
  }
}

describe('calls over seats', () => {
  it('are never given to an enclave that is not in use, and always to one when there is one', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const stage = new Stage()
        for (const one of steps) {
          const serving = stage.history.map(isServing)
          const chosen = stage.play(one)
          if (one.kind !== 'call') continue
          expect(chosen === null).toBe(!serving.includes(true))
          if (chosen !== null) expect(serving[chosen]).toBe(true)
        }
      }),
    )
  })

  it('go to the fewest in flight, and are counted back to zero', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const stage = new Stage()
        for (const one of steps) {
          const before = stage.seats
            .filter((_, index) => isServing(stage.history[index] ?? []))
            .map(({ calls }) => calls)
          const chosen = stage.play(one)
          if (chosen !== null) expect(stage.seats[chosen]?.calls).toBe(Math.min(...before) + 1)
          expect(stage.seats.map(({ calls }) => calls)).toEqual(
            stage.seats.map((_, index) => stage.running.filter((seat) => seat === index).length),
          )
        }
        while (stage.running.length > 0) stage.end(0)
        expect(stage.seats.map(({ calls }) => calls)).toEqual(stage.seats.map(() => 0))
      }),
    )
  })

  it('keep a seat out of drained until they ended and its log is settled', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const stage = new Stage()
        for (const one of steps) {
          stage.play(one)
          for (const state of stage.seats) {
            const phase = phaseOf(state)
            expect(SEAT_PHASES).toContain(phase)
            expect(phase === 'usable').toBe(isUsable(state))
            if (phase === 'drained') expect([state.calls, isToFollow(state)]).toEqual([0, false])
          }
        }
      }),
    )
  })

  it('are spread evenly over seats that are alike', () => {
    const stage = new Stage()
    for (let seat = 0; seat < SEATS; seat++) stage.tell(seat, answered('a'))
    for (let call = 0; call < 30; call++) stage.call()
    expect(stage.seats.map(({ calls }) => calls)).toEqual([10, 10, 10])
    const quick = new Stage()
    for (let seat = 0; seat < SEATS; seat++) quick.tell(seat, answered('a'))
    const chosen = Array.from({ length: 6 }, () => {
      const seat = quick.call()
      quick.end(0)
      return seat
    })
    expect(chosen).toEqual([0, 1, 2, 0, 1, 2])
  })

  it('prefer a log that can be stored, then a provider for the model, but take what there is', () => {
    const usable = seatAfter(answered('a'))
    const seat = (name: string, isCommitting: boolean, servesCall: boolean, calls = 0) => ({
      ...{ name, isCommitting, servesCall, chosenAt: 0, state: { ...usable, calls } },
    })
    expect(chooseSeat([seat('none', false, false), seat('both', true, true, 9)])?.name).toBe('both')
    expect(chooseSeat([seat('serves', false, true), seat('commits', true, false)])?.name).toBe('commits')
    expect(chooseSeat([seat('other', true, false), seat('serves', true, true, 9)])?.name).toBe('serves')
    expect(chooseSeat([seat('none', false, false)])?.name).toBe('none')
    expect(chooseSeat([{ ...seat('lost', true, true), state: NEW_SEAT }])).toBeNull()
  })
})
