import { describe, expect, it } from 'vitest'
import { type Circuit, CLOSED_CIRCUIT } from '../../../src/nodes/circuit.ts'
import { NODE_LIMITS } from '../../../src/nodes/limits.ts'
import type { NodeState } from '../../../src/nodes/node-state.ts'
import { createStanding } from '../../../src/nodes/standing.ts'

function stand(state: NodeState, circuit: Circuit = CLOSED_CIRCUIT) {
  const clock = { nowMs: 1_000 }
  const told: boolean[] = []
  const standing = createStanding({
    state,
    circuit,
    limits: NODE_LIMITS,
    now: () => clock.nowMs,
    random: () => 1,
    onChange: (isNewState) => told.push(isNewState),
  })
  return { standing, told, clock }
}

describe('a node that is to be verified', () => {
  it('is probed at once and gets work when it is healthy', () => {
    const { standing, told } = stand('RUNNING_BENCHMARKING')
    expect(standing.isServing()).toBe(false)
    expect(standing.isProbeDue()).toBe(true)
    standing.probeBegins()
    expect(standing.isProbeDue()).toBe(false)
    standing.probeEnds('healthy')
    expect(standing.state()).toBe('RUNNING')
    expect(standing.isServing()).toBe(true)
    expect(told).toEqual([true])
  })

  it('is probed again in a minute when it gave no answer', () => {
    const { standing, clock } = stand('RUNNING_BENCHMARKING')
    standing.probeBegins()
    standing.probeEnds('failed')
    expect(standing.state()).toBe('RUNNING_BENCHMARKING')
    clock.nowMs += NODE_LIMITS.probeRetryMs - 1
    expect(standing.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(standing.isProbeDue()).toBe(true)
  })
})

describe('a running node', () => {
  it('is probed when it served nothing for ten minutes', () => {
    const { standing, clock } = stand('RUNNING')
    clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
    standing.succeeded()
    clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
    expect(standing.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(standing.isProbeDue()).toBe(true)
  })

  it('is degraded by a probe that is slow, and comes back by one that is healthy', () => {
    const { standing, clock } = stand('RUNNING')
    standing.probeBegins()
    standing.probeEnds('slow')
    expect(standing.state()).toBe('RUNNING_DEGRADED')
    clock.nowMs += NODE_LIMITS.probeRetryMs
    expect(standing.isProbeDue()).toBe(true)
    standing.probeBegins()
    standing.probeEnds('healthy')
    expect(standing.isServing()).toBe(true)
  })

  it('is set aside by three failures, and probed when its time has come', () => {
    const { standing, told, clock } = stand('RUNNING')
    for (let count = 0; count < 3; count++) standing.failed()
    expect(standing.isServing()).toBe(false)
    expect(told).toEqual([false])
    clock.nowMs += NODE_LIMITS.asideMs - 1
    expect(standing.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(standing.isProbeDue()).toBe(true)
    standing.probeBegins()
    expect(standing.circuit().kind).toBe('probing')
    standing.probeEnds('healthy')
    expect(standing.isServing()).toBe(true)
  })

  it('that fails its probe too is set aside for twice as long', () => {
    const { standing, clock } = stand('RUNNING')
    for (let count = 0; count < 3; count++) standing.failed()
    clock.nowMs += NODE_LIMITS.asideMs
    standing.probeBegins()
    standing.probeEnds('failed')
    expect(standing.state()).toBe('RUNNING_DEGRADED')
    clock.nowMs += 2 * NODE_LIMITS.asideMs - 1
    expect(standing.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(standing.isProbeDue()).toBe(true)
  })

  it('is probed after five refusals in a row, and not when an answer was between them', () => {
    const { standing } = stand('RUNNING')
    for (let count = 0; count < 4; count++) standing.refused()
    standing.succeeded()
    for (let count = 0; count < 4; count++) standing.refused()
    expect(standing.isProbeDue()).toBe(false)
    standing.refused()
    expect(standing.isProbeDue()).toBe(true)
  })
})

describe('a node that was set aside before it dialled again', () => {
  it.each(['RUNNING', 'RUNNING_BENCHMARKING'] as const)(
    'as %s is still, and is probed in its time',
    (state) => {
      const { standing, clock } = stand(state, { kind: 'open', retryAtMs: 5_000, asideMs: 4_000 })
      expect(standing.isServing()).toBe(false)
      clock.nowMs = 4_999
      expect(standing.isProbeDue()).toBe(false)
      clock.nowMs = 5_000
      expect(standing.isProbeDue()).toBe(true)
      standing.probeBegins()
      standing.probeEnds('healthy')
      expect(standing.isServing()).toBe(true)
    },
  )
})

describe('a disabled node', () => {
  it('is neither given work nor probed', () => {
    const { standing, clock } = stand('RUNNING_DISABLED')
    clock.nowMs += 1e9
    expect(standing.isServing()).toBe(false)
    expect(standing.isProbeDue()).toBe(false)
  })
})
