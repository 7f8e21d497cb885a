import { expect, it } from 'vitest'
import { fuzzProviderEvidence } from '../../support/provider-fuzz.ts'

it('500 mutated quotes, collaterals and event logs are refused with our error, or say the same', async () => {
  const { failures, refused } = await fuzzProviderEvidence(500, 20_260_305)
  expect(failures).toEqual([])
  // That every stage was reached, not the first check alone.
  for (const code of ['quote_truncated', 'quote_signature', 'crl_malformed', 'event_log_malformed'])
    expect(refused.get(code) ?? 0, code).toBeGreaterThan(0)
})
