import { expect, it } from 'vitest'
import { fuzzProviders } from '../../support/hardware-fuzz.ts'

/** `node test/bench/fuzz-providers.ts` makes more of them. */
const MUTANTS = 4_000

it('mutated reports, device evidence and tokens are refused with our error', {
  timeout: 600_000,
}, async () => {
  const { failures, refused } = await fuzzProviders({ count: MUTANTS, seed: Date.now() })
  expect(failures).toEqual([])
  expect(refused.size).toBeGreaterThan(40)
})
