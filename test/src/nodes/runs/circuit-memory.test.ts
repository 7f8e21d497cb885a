import { expect, it } from 'vitest'
import {
  type Circuit,
  CLOSED_CIRCUIT,
  createCircuitMemory,
  REMEMBERED_MAX,
} from '#src/nodes/runs/node-health.ts'

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
