import { expect, it } from 'vitest'
import type { NodeState } from '#src/nodes/registry/node-state.ts'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import {
  type Circuit,
  CLOSED_CIRCUIT,
  createCircuitMemory,
  createNodeHealth,
  REMEMBERED_MAX,
} from '#src/nodes/runs/node-health.ts'

function stand(
  state: NodeState,
  circuit: Circuit = CLOSED_CIRCUIT,
  models: readonly string[] = ['m'],
) {
  const clock = { nowMs: 1_000 }
  const reported: boolean[] = []
  const health = createNodeHealth({
    state,
    circuits: new Map(models.map((model) => [model, circuit])),
    limits: NODE_LIMITS,
    now: () => clock.nowMs,
    random: () => 1,
    onChange: (isNewState) => reported.push(isNewState),
  })
  return { health, reported, clock }
}

it('a node that is to be verified is probed again in a minute when it gave no answer', () => {
  const { health, clock } = stand('RUNNING_BENCHMARKING')
  health.probeBegins('m')
  health.probeEnds('failed')
  expect(health.state()).toBe('RUNNING_BENCHMARKING')
  clock.nowMs += NODE_LIMITS.probeRetryMs - 1
  expect(health.dueProbe()).toBeNull()
  clock.nowMs += 1
  expect(health.dueProbe()).toBe('m')
})

it('a running node is probed when it served nothing for ten minutes', () => {
  const { health, clock } = stand('RUNNING')
  clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
  health.succeeded('m')
  clock.nowMs += NODE_LIMITS.probeIntervalMs - 1
  expect(health.dueProbe()).toBeNull()
  clock.nowMs += 1
  expect(health.dueProbe()).toBe('m')
})

it('a running node is degraded by a slow probe, and comes back by a healthy one', () => {
  const { health, clock } = stand('RUNNING')
  health.probeBegins('m')
  health.probeEnds('slow')
  expect(health.state()).toBe('RUNNING_DEGRADED')
  clock.nowMs += NODE_LIMITS.probeRetryMs
  expect(health.dueProbe()).toBe('m')
  health.probeBegins('m')
  health.probeEnds('healthy')
  expect(health.isServing()).toBe(true)
})

it('a running node is set aside by three failures, and probed when its time has come', () => {
  const { health, reported, clock } = stand('RUNNING')
  for (let count = 0; count < 3; count++) health.failed('m')
  expect(health.isServing()).toBe(false)
  expect(reported).toEqual([false])
  clock.nowMs += NODE_LIMITS.asideMs - 1
  expect(health.dueProbe()).toBeNull()
  clock.nowMs += 1
  expect(health.dueProbe()).toBe('m')
  health.probeBegins('m')
  expect(health.circuits().get('m')?.kind).toBe('probing')
  health.probeEnds('healthy')
  expect(health.isServing()).toBe(true)
})

it('a node that fails its probes too is set aside for twice as long each time, up to the maximum', () => {
  const { health, clock } = stand('RUNNING')
  for (let count = 0; count < 3; count++) health.failed('m')
  for (let asideMs = NODE_LIMITS.asideMs; asideMs < 4 * NODE_LIMITS.asideMaxMs; asideMs *= 2) {
    clock.nowMs += Math.min(asideMs, NODE_LIMITS.asideMaxMs) - 1
    expect(health.dueProbe()).toBeNull()
    clock.nowMs += 1
    expect(health.dueProbe()).toBe('m')
    health.probeBegins('m')
    // A run that began in better times: only the probe leads back to work.
    health.succeeded('m')
    expect(health.isServing()).toBe(false)
    health.probeEnds('failed')
    expect(health.state()).toBe('RUNNING_DEGRADED')
  }
})

it('a running node is probed after five refusals in a row, and not when an answer was between them', () => {
  const { health } = stand('RUNNING')
  for (let count = 0; count < 4; count++) health.refused('m')
  health.succeeded('m')
  for (let count = 0; count < 4; count++) health.refused('m')
  expect(health.dueProbe()).toBeNull()
  health.refused('m')
  expect(health.dueProbe()).toBe('m')
})

it.each(['RUNNING', 'RUNNING_BENCHMARKING'] as const)(
  'a node that was set aside, and dials again as %s, is set aside still and probed in its time',
  (state) => {
    const { health, clock } = stand(state, { kind: 'open', retryAtMs: 5_000, asideMs: 4_000 })
    expect(health.isServing()).toBe(false)
    clock.nowMs = 4_999
    expect(health.dueProbe()).toBeNull()
    clock.nowMs = 5_000
    expect(health.dueProbe()).toBe('m')
    health.probeBegins('m')
    health.probeEnds('healthy')
    expect(health.isServing()).toBe(true)
  },
)

it('a node whose one model fails serves the other, and is probed with the one that fails', () => {
  const { health, clock } = stand('RUNNING', CLOSED_CIRCUIT, ['a', 'b'])
  for (let count = 0; count < 3; count++) health.failed('b')
  expect([health.isServing('a'), health.isServing('b'), health.isServing()]).toEqual([
    true,
    false,
    true,
  ])
  clock.nowMs += NODE_LIMITS.asideMs
  expect(health.dueProbe()).toBe('b')
  health.probeBegins('b')
  health.probeEnds('failed')
  expect(health.state()).toBe('RUNNING')
  expect(health.isServing('a')).toBe(true)
  clock.nowMs += 2 * NODE_LIMITS.asideMs
  health.probeBegins('b')
  health.probeEnds('healthy')
  expect(health.isServing('b')).toBe(true)
})

it('a node is degraded when the last of its models fails a probe', () => {
  const { health, clock } = stand('RUNNING', CLOSED_CIRCUIT, ['a', 'b'])
  for (const model of ['a', 'b']) for (let count = 0; count < 3; count++) health.failed(model)
  expect(health.isServing()).toBe(false)
  clock.nowMs += NODE_LIMITS.asideMs
  health.probeBegins(health.dueProbe() ?? '')
  health.probeEnds('failed')
  expect(health.state()).toBe('RUNNING_DEGRADED')
})

it('a node is probed with the model that was refused, and sets that one aside alone', () => {
  const { health } = stand('RUNNING', CLOSED_CIRCUIT, ['a', 'b'])
  for (let count = 0; count < NODE_LIMITS.refusalsMax; count++) health.refused('b')
  expect(health.dueProbe()).toBe('b')
  health.probeBegins('b')
  health.probeEnds('failed')
  expect([health.state(), health.isServing('a'), health.isServing('b')]).toEqual([
    'RUNNING',
    true,
    false,
  ])
})

it('a node that has no time for a probe is asked again after a while', () => {
  const { health, clock } = stand('RUNNING', CLOSED_CIRCUIT, ['a', 'b'])
  for (let count = 0; count < 3; count++) health.failed('b')
  clock.nowMs += NODE_LIMITS.asideMs
  health.probePutOff()
  expect(health.dueProbe()).toBeNull()
  clock.nowMs += NODE_LIMITS.probeRetryMs
  expect(health.dueProbe()).toBe('b')
  health.probeBegins('b')
  health.probePutOff()
  clock.nowMs += NODE_LIMITS.probeRetryMs + NODE_LIMITS.asideMs
  expect(health.dueProbe()).toBe('b')
})

const OPEN: Circuit = { kind: 'open', retryAtMs: 500, asideMs: 100 }

it('the memory of circuits sets a node aside whose probe was cut short, as long as before', () => {
  const memory = createCircuitMemory()
  memory.keep('a', new Map<string, Circuit>([['m', { kind: 'probing', asideMs: 100 }]]), 1_000)
  expect(memory.recall('a', ['m']).get('m')).toEqual({
    kind: 'open',
    retryAtMs: 1_100,
    asideMs: 100,
  })
})

it('the memory of circuits holds nothing about nodes in good standing', () => {
  const memory = createCircuitMemory()
  memory.keep('a', new Map([['m', OPEN]]), 0)
  memory.keep('a', new Map([['m', CLOSED_CIRCUIT]]), 0)
  expect(memory.size()).toBe(0)
})

it('the memory of circuits forgets the oldest beyond its bound', () => {
  const memory = createCircuitMemory()
  for (let node = 0; node <= REMEMBERED_MAX; node++)
    memory.keep(`node-${node}`, new Map([['m', OPEN]]), 0)
  expect(memory.size()).toBe(REMEMBERED_MAX)
  expect(memory.recall('node-0', ['m']).get('m')).toBe(CLOSED_CIRCUIT)
  expect(memory.recall(`node-${REMEMBERED_MAX}`, ['m']).get('m')).toEqual(OPEN)
})
