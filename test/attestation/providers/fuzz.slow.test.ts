import { expect, it } from 'vitest'
import { fuzzProviderEvidence } from '../../support/provider-fuzz.ts'

const HOUR_MS = 3_600_000

it('100,000 mutated quotes, collaterals and event logs are refused with our error, or say the same', {
  timeout: HOUR_MS,
}, async () => {
  const { failures } = await fuzzProviderEvidence(100_000, 20_260_306)
  expect(failures).toEqual([])
})
