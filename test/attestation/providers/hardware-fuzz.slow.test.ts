import { expect, it } from 'vitest'
import { fuzzProviders } from '../../support/hardware-fuzz.ts'

it('100,000 mutated reports, device evidence and tokens are refused with our error', async () => {
  const { failures, refused } = await fuzzProviders({ count: 100_000, seed: Date.now() })
  expect(failures).toEqual([])
  expect(refused.size).toBeGreaterThan(40)
}, 1_200_000)
