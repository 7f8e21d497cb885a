import { expect, it } from 'vitest'
import { fuzzEvidence } from '../../support/evidence-fuzz.ts'

it('mutated evidences of all kinds are refused with our error, or prove the same', async () => {
  const { failures, refused } = await fuzzEvidence(200, 20_260_307)
  expect(failures).toEqual([])
  // That every stage was reached, not the first check alone.
  for (const code of [
    'evidence_malformed',
    'answer_malformed',
    'bundle_malformed',
    'certificate_der',
    'crl_malformed',
    'quote_truncated',
    'tcb_info_signature',
  ])
    expect(refused.get(code) ?? 0, code).toBeGreaterThan(0)
})
