import { describe, expect, it } from 'vitest'
import { NODE_LIMITS } from '../../../src/nodes/limits.ts'
import { type Circuit, CLOSED_CIRCUIT, createNodeHealth } from '../../../src/nodes/node-health.ts'
import type { NodeState } from '../../../src/nodes/node-state.ts'

function stand(state: NodeState, circuit: Circuit = CLOSED_CIRCUIT) {
  const clock = { nowMs: 1_000 }
  const told: boolean[] = []
  const health = createNodeHealth({
    state,
    circuit,
    limits: NODE_LIMITS,
    now: () => clock.nowMs,
    random: () => 1,
    onChange: (isNewState) => told.push(isNewState),
  })
  return { health, told, clock }
}

describe('a node that is to be verified', () => {
  it('a node that is to be verified is probed at once and gets work when it is healthy', () => {
    const { health, told } = stand('RUNNING_BENCHMARKING')
    expect(health.isServing()).toBe(false)
    expect(health.isProbeDue()).toBe(true)
    health.probeBegins()
    expect(health.isProbeDue()).toBe(false)
    health.probeEnds('healthy')
    expect(health.state()).toBe('RUNNING')
    expect(health.isServing()).toBe(true)
    expect(told).toEqual([true])
  })

  it('a node that is to be verified is probed again in a minute when it gave no answer', () => {
    const { health, clock } = stand('RUNNING_BENCHMARKING')
    health.probeBegins()
    health.probeEnds('failed')
    expect(health.state()).toBe('RUNNING_BENCHMARKING')
    clock.nowMs += NODE_LIMITS.probeRetryMs - 1
    expect(health.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(health.isProbeDue()).toBe(true)
  })
})

describe('a running node', () => {
  it('a running node is probed when it served nothing for ten minutes', () => {
    const { health, clock } = stand('RUNNING')
    clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
    health.succeeded()
    clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
    expect(health.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(health.isProbeDue()).toBe(true)
  })

  it('a running node is degraded by a slow probe, and comes back by a healthy one', () => {
    const { health, clock } = stand('RUNNING')
    health.probeBegins()
    health.probeEnds('slow')
    expect(health.state()).toBe('RUNNING_DEGRADED')
    clock.nowMs += NODE_LIMITS.probeRetryMs
    expect(health.isProbeDue()).toBe(true)
    health.probeBegins()
    health.probeEnds('healthy')
    expect(health.isServing()).toBe(true)
  })

  it('a running node is set aside by three failures, and probed when its time has come', () => {
    const { health, told, clock } = stand('RUNNING')
    for (let count = 0; count < 3; count++) health.failed()
    expect(health.isServing()).toBe(false)
    expect(told).toEqual([false])
    clock.nowMs += NODE_LIMITS.asideMs - 1
    expect(health.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(health.isProbeDue()).toBe(true)
    health.probeBegins()
    expect(health.circuit().kind).toBe('probing')
    health.probeEnds('healthy')
    expect(health.isServing()).toBe(true)
  })

  it('a node that fails its probe too is set aside for twice as long', () => {
    const { health, clock } = stand('RUNNING')
    for (let count = 0; count < 3; count++) health.failed()
    clock.nowMs += NODE_LIMITS.asideMs
    health.probeBegins()
    health.probeEnds('failed')
    expect(health.state()).toBe('RUNNING_DEGRADED')
    clock.nowMs += 2 * NODE_LIMITS.asideMs - 1
    expect(health.isProbeDue()).toBe(false)
    clock.nowMs += 1
    expect(health.isProbeDue()).toBe(true)
  })

  it('a running node is probed after five refusals in a row, and not when an answer was between them', () => {
    const { health } = stand('RUNNING')
    for (let count = 0; count < 4; count++) health.refused()
    health.succeeded()
    for (let count = 0; count < 4; count++) health.refused()
    expect(health.isProbeDue()).toBe(false)
    health.refused()
    expect(health.isProbeDue()).toBe(true)
  })
})

describe('a node that was set aside before it dialled again', () => {
  it.each(['RUNNING', 'RUNNING_BENCHMARKING'] as const)(
    'a node that was set aside, and dials again as %s, is set aside still and probed in its time',
    (state) => {
      const { health, clock } = stand(state, { kind: 'open', retryAtMs: 5_000, asideMs: 4_000 })
      expect(health.isServing()).toBe(false)
      clock.nowMs = 4_999
      expect(health.isProbeDue()).toBe(false)
      clock.nowMs = 5_000
      expect(health.isProbeDue()).toBe(true)
      health.probeBegins()
      health.probeEnds('healthy')
      expect(health.isServing()).toBe(true)
    },
  )
})

describe('a disabled node', () => {
  it('a disabled node is neither given work nor probed', () => {
    const { health, clock } = stand('RUNNING_DISABLED')
    clock.nowMs += 1e9
    expect(health.isServing()).toBe(false)
    expect(health.isProbeDue()).toBe(false)
  })
})
