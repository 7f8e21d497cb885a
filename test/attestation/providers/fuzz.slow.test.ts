import { expect, it } from 'vitest'
import { fuzzProviderEvidence } from '../../support/provider-fuzz.ts'

/** `node test/bench/fuzz-providers.ts` makes more of them. */
const MUTANTS = 4_000

it('mutated quotes, collaterals and event logs are refused with our error, or say the same', {
  timeout: 600_000,
}, async () => {
  const { failures } = await fuzzProviderEvidence(MUTANTS, Date.now())
  expect(failures).toEqual([])
})
