import { expect, it } from 'vitest'
import { fuzzEvidence } from '../../../support/evidence-fuzz.ts'

const HOUR_MS = 3_600_000

it('100,000 mutated evidences of all kinds are refused with our error, or prove the same', {
  timeout: 2 * HOUR_MS,
}, async () => {
  const { failures } = await fuzzEvidence(100_000, 20_260_308)
  expect(failures).toEqual([])
})
