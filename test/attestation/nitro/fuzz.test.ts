import { expect, it } from 'vitest'
import { fuzzAttestation } from '../../support/nitro-fuzz/fuzz.ts'

it('mutated documents are refused with our error, quickly, but for the harmless forms', async () => {
  const { failures, refused, accepted } = await fuzzAttestation({
    documents: 1000,
    seed: 20_260_304,
  })
  expect(failures).toEqual([])
  // That every stage was reached, not the first check alone.
  for (const code of [
    'cbor_truncated',
    'payload_duplicate_key',
    'certificate_der',
    'signature_invalid',
  ])
    expect(refused.get(code) ?? 0, code).toBeGreaterThan(0)
  expect(accepted.get('tag 18') ?? 0).toBeGreaterThan(0)
})
