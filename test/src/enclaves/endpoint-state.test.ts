import fc from 'fast-check'
import { expect, it } from 'vitest'
import { chooseEndpoint } from '#src/enclaves/choose-enclave.ts'
import {
  ENDPOINT_PHASES,
  type EndpointEvent,
  type EndpointState,
  isToFollow,
  isUsable,
  NEW_ENDPOINT,
  nextEndpointState,
  phaseOf,
} from '#src/enclaves/endpoint-state.ts'

const answered = (notary: string, isAccepted = true, isKnown = false): EndpointEvent => ({
  kind: 'answered',
  notary,
  isAccepted,
  isKnown,
})
const order = (what: EndpointState['order']): EndpointEvent => ({ kind: 'ordered', order: what })
const stateAfter = (...events: readonly EndpointEvent[]) =>
  events.reduce(nextEndpointState, NEW_ENDPOINT)
const phaseAfter = (...events: readonly EndpointEvent[]) => phaseOf(stateAfter(...events))

it.each<readonly [string, readonly EndpointEvent[]]>([
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
  [
    'usable',
    [answered('a'), answered('a', false), { kind: 'settled', notary: 'a' }, answered('a')],
  ],
  // An enclave that a gateway before this one used may hold what callers wait for.
  ['draining', [answered('a', false, true)]],
  // Another enclave restarted behind the same socket.
  ['usable', [answered('a'), answered('b')]],
  ['refused', [answered('a'), answered('b', false)]],
])('an endpoint is %s after %j', (phase, events) => {
  expect(phaseAfter(...events)).toBe(phase)
})

it('an endpoint does not count as settled while a call runs, for another notary, or while it serves', () => {
  const settled: EndpointEvent = { kind: 'settled', notary: 'a' }
  expect(stateAfter(answered('a'), { kind: 'call_began' }, order('drain'), settled).isSettled).toBe(
    false,
  )
  expect(
    stateAfter(answered('a'), order('drain'), { kind: 'settled', notary: 'b' }).isSettled,
  ).toBe(false)
  expect(stateAfter(answered('a'), settled).isSettled).toBe(false)
})

it('an endpoint is followed from its first acceptance until it is settled, whatever is accepted later', () => {
  const refusedLater = stateAfter(answered('a'), answered('a', false))
  expect(isToFollow(refusedLater)).toBe(true)
  expect(isToFollow(nextEndpointState(refusedLater, { kind: 'settled', notary: 'a' }))).toBe(false)
  expect(isToFollow(stateAfter(answered('a', false)))).toBe(false)
  expect(isToFollow(stateAfter(answered('a'), answered('b', false)))).toBe(false)
})

const notary = fc.constantFrom('a', 'b', 'c')
const event: fc.Arbitrary<EndpointEvent> = fc.oneof(
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

/**
 * What the operator and the network last said of an endpoint, kept apart from the state machine.
 */
function isServing(events: readonly EndpointEvent[]): boolean {
  const lastOrder = events.findLast(({ kind }) => kind === 'ordered')
  const lastContact = events.findLast(({ kind }) => kind === 'answered' || kind === 'lost')
  return (
    (lastOrder?.kind !== 'ordered' || lastOrder.order === 'serve') &&
    lastContact?.kind === 'answered' &&
    lastContact.isAccepted
  )
}

const callsOf = ({ calls }: EndpointState) => calls

type Step =
  | { readonly kind: 'event'; readonly endpoint: number; readonly event: EndpointEvent }
  | { readonly kind: 'call' }
  | { readonly kind: 'end'; readonly call: number }

const ENDPOINTS = 3
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('event' as const), endpoint: fc.nat(ENDPOINTS - 1), event }),
  fc.record({ kind: fc.constant('call' as const) }),
  fc.record({ kind: fc.constant('end' as const), call: fc.nat() }),
)

/** Gateway and callers: calls are chosen an endpoint, and end in any order. */
class Stage {
  readonly endpoints: EndpointState[] = Array.from({ length: ENDPOINTS }, () => NEW_ENDPOINT)
  readonly history: EndpointEvent[][] = Array.from({ length: ENDPOINTS }, () => [])
  readonly chosenAt: number[] = Array.from({ length: ENDPOINTS }, () => 0)
  readonly running: number[] = []
  private count = 0

  apply(endpoint: number, reported: EndpointEvent): void {
    this.endpoints[endpoint] = nextEndpointState(this.endpoints[endpoint] ?? NEW_ENDPOINT, reported)
    this.history[endpoint]?.push(reported)
  }

  /** The endpoint of a new call. */
  call(): number | null {
    const choices = this.endpoints.map((state, index) => ({
      index,
      state,
      chosenAt: this.chosenAt[index] ?? 0,
      isCommitting: true,
    }))
    const chosen = chooseEndpoint(choices, () => true)?.index ?? null
    if (chosen === null) return null
    this.count += 1
    this.chosenAt[chosen] = this.count
    this.running.push(chosen)
    this.apply(chosen, { kind: 'call_began' })
    return chosen
  }

  end(call: number): void {
    const [endpoint] = this.running.splice(call % Math.max(1, this.running.length), 1)
    if (endpoint !== undefined) this.apply(endpoint, { kind: 'call_ended' })
  }

  play(given: Step): number | null {
    if (given.kind === 'call') return this.call()
    if (given.kind === 'event') this.apply(given.endpoint, given.event)
    else this.end(given.call)
    return null
  }
}

it('calls over endpoints go to one in use with the fewest in flight, if there is one, and are counted back to zero', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const stage = new Stage()
      for (const one of steps) {
        const serving = stage.history.map(isServing)
        const fewest = Math.min(...stage.endpoints.filter((_, at) => serving[at]).map(callsOf))
        const chosen = stage.play(one)
        if (one.kind === 'call') expect(chosen === null).toBe(!serving.includes(true))
        if (chosen !== null) {
          expect(serving[chosen]).toBe(true)
          expect(stage.endpoints[chosen]?.calls).toBe(fewest + 1)
        }
        const running = (at: number) => stage.running.filter((endpoint) => endpoint === at).length
        expect(stage.endpoints.map(callsOf)).toEqual(stage.endpoints.map((_, at) => running(at)))
        for (const state of stage.endpoints) {
          const phase = phaseOf(state)
          expect(ENDPOINT_PHASES).toContain(phase)
          expect(phase === 'usable').toBe(isUsable(state))
          if (phase === 'drained') expect([state.calls, isToFollow(state)]).toEqual([0, false])
        }
      }
      while (stage.running.length > 0) stage.end(0)
      expect(stage.endpoints.map(callsOf)).toEqual(stage.endpoints.map(() => 0))
    }),
  )
})

it('calls over endpoints prefer a log that can be stored, then a provider for the model, but take what there is', () => {
  const usable = stateAfter(answered('a'))
  const endpoint = (name: string, isCommitting: boolean, servesCall: boolean, calls = 0) => ({
    name,
    isCommitting,
    servesCall,
    chosenAt: 0,
    state: { ...usable, calls },
  })
  const nameOf = (...endpoints: readonly ReturnType<typeof endpoint>[]) =>
    chooseEndpoint(endpoints, ({ servesCall }) => servesCall)?.name ?? null
  expect(nameOf(endpoint('none', false, false), endpoint('both', true, true, 9))).toBe('both')
  expect(nameOf(endpoint('serves', false, true), endpoint('commits', true, false))).toBe('commits')
  expect(nameOf(endpoint('other', true, false), endpoint('serves', true, true, 9))).toBe('serves')
  expect(nameOf(endpoint('none', false, false))).toBe('none')
  expect(nameOf({ ...endpoint('lost', true, true), state: NEW_ENDPOINT })).toBeNull()
})
