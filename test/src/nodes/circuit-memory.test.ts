import { describe, expect, it } from 'vitest'
import {
  CLOSED_CIRCUIT,
  createCircuitMemory,
  REMEMBERED_MAX,
} from '../../../src/nodes/node-health.ts'

const OPEN = { kind: 'open', retryAtMs: 500, asideMs: 100 } as const

describe('the memory of circuits', () => {
  it('the memory of circuits gives back the circuit that a node left', () => {
    const memory = createCircuitMemory()
    memory.keep('bad', OPEN, 450)
    memory.keep('once', { kind: 'closed', failures: 1 }, 450)
    expect(memory.recall('bad')).toEqual(OPEN)
    expect(memory.recall('once')).toEqual({ kind: 'closed', failures: 1 })
    expect(memory.recall('new')).toBe(CLOSED_CIRCUIT)
  })

  it('the memory of circuits sets a node aside whose probe was cut short, as long as before', () => {
    const memory = createCircuitMemory()
    memory.keep('a', { kind: 'probing', asideMs: 100 }, 1_000)
    expect(memory.recall('a')).toEqual({ kind: 'open', retryAtMs: 1_100, asideMs: 100 })
  })

  it('the memory of circuits holds nothing about nodes in good standing', () => {
    const memory = createCircuitMemory()
    memory.keep('a', OPEN, 0)
    memory.keep('a', CLOSED_CIRCUIT, 0)
    expect(memory.size()).toBe(0)
  })

  it('the memory of circuits forgets the oldest beyond its bound', () => {
    const memory = createCircuitMemory()
    for (let node = 0; node <= REMEMBERED_MAX; node++) memory.keep(`node-${node}`, OPEN, 0)
    expect(memory.size()).toBe(REMEMBERED_MAX)
    expect(memory.recall('node-0')).toBe(CLOSED_CIRCUIT)
    expect(memory.recall(`node-${REMEMBERED_MAX}`)).toEqual(OPEN)
  })
})
