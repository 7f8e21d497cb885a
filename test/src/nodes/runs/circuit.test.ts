import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  type Circuit,
  CLOSED_CIRCUIT,
  circuitAfterFailure,
  circuitAfterSuccess,
  circuitAtProbe,
} from '#src/nodes/runs/node-health.ts'

const LIMITS = { failuresMax: 3, asideMs: 100, asideMaxMs: 500 }
const fail = (circuit: Circuit, nowMs = 0) => circuitAfterFailure(circuit, nowMs, LIMITS)

it('a circuit opens at the third failure in a row', () => {
  const twice = fail(fail(CLOSED_CIRCUIT))
  expect(twice).toEqual({ kind: 'closed', failures: 2 })
  expect(fail(twice, 50)).toEqual({ kind: 'open', retryAtMs: 150, asideMs: 100 })
})

it('a circuit forgets failures at a success', () => {
  expect(circuitAfterSuccess(fail(fail(CLOSED_CIRCUIT)))).toBe(CLOSED_CIRCUIT)
})

it('a circuit is not closed by a run that began in better times', () => {
  const open = fail(fail(fail(CLOSED_CIRCUIT)))
  expect(circuitAfterSuccess(open)).toBe(open)
  expect(circuitAfterSuccess(circuitAtProbe(open))).toEqual({ kind: 'probing', asideMs: 100 })
})

it('a circuit waits twice as long after each probe that fails, up to the maximum', () => {
  let circuit = fail(fail(fail(CLOSED_CIRCUIT)))
  const waits: number[] = []
  for (let probe = 0; probe < 4; probe++) {
    circuit = fail(circuitAtProbe(circuit))
    if (circuit.kind === 'open') waits.push(circuit.asideMs)
  }
  expect(waits).toEqual([200, 400, 500, 500])
})

it('a closed circuit stays closed at the start of a probe', () => {
  expect(circuitAtProbe(CLOSED_CIRCUIT)).toBe(CLOSED_CIRCUIT)
})

it('a circuit never sets a node aside for longer than the maximum, whatever happens', () => {
  const step = fc.constantFrom('fail', 'succeed', 'probe', 'probed')
  fc.assert(
    fc.property(fc.array(step, { maxLength: 50 }), (steps) => {
      let circuit: Circuit = CLOSED_CIRCUIT
      let nowMs = 0
      for (const what of steps) {
        nowMs += 10
        const before: Circuit = circuit
        if (what === 'fail') circuit = fail(circuit, nowMs)
        if (what === 'succeed') circuit = circuitAfterSuccess(circuit)
        if (what === 'probe') circuit = circuitAtProbe(circuit)
        if (what === 'probed' && circuit.kind === 'probing') circuit = CLOSED_CIRCUIT
        if (circuit.kind === 'open')
          expect(circuit.retryAtMs - nowMs).toBeLessThanOrEqual(LIMITS.asideMaxMs)
        // Only a probe leads back to work.
        if (before.kind === 'open') expect(circuit.kind).not.toBe('closed')
      }
    }),
  )
})
