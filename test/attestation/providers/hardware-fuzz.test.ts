import { expect, it } from 'vitest'
import { fuzzProviders } from '../../support/hardware-fuzz.ts'

it('mutated reports, device evidence and tokens are refused with our error', async () => {
  const { failures, refused, accepted } = await fuzzProviders(300, 20_260_304)
  expect(failures).toEqual([])
  // That every stage was reached, not the first check alone.
  for (const code of [
    'certificate_der',
    'measurement_mismatch',
    'nonce_mismatch',
    'token_malformed',
    'token_signature_invalid',
  ])
    expect(refused.get(code) ?? 0, code).toBeGreaterThan(0)
  expect(accepted.get('signed by the genuine key') ?? 0).toBeGreaterThan(0)
})
