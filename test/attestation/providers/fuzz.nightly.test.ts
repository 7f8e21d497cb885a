import { expect, it } from 'vitest'
import { fuzzEvidence } from '../../support/evidence-fuzz.ts'
import { fuzzProviders } from '../../support/hardware-fuzz.ts'

it.each([
  ['evidences of all kinds', fuzzEvidence],
  ['reports, device evidence and tokens', fuzzProviders],
])(
  '100,000 mutated %s are refused with our error, or say the same',
  { timeout: 7_200_000 },
  async (_, fuzz) => {
    const { failures, refused } = await fuzz(100_000, Date.now())
    expect(failures).toEqual([])
    expect(refused.size).toBeGreaterThan(40)
  },
)
