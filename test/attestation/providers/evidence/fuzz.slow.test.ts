import { expect, it } from 'vitest'
import { fuzzEvidence } from '../../../support/evidence-fuzz.ts'

/** `node test/bench/fuzz-providers.ts` makes more of them. */
const MUTANTS = 2_000

it('mutated evidences of all kinds are refused with our error, or prove the same', {
  timeout: 600_000,
}, async () => {
  const { failures } = await fuzzEvidence(MUTANTS, Date.now())
  expect(failures).toEqual([])
})
