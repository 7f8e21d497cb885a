import { expect, it } from 'vitest'
import { type AttestationCode, AttestationError } from '#attestation/nitro/attestation-error.ts'
import { outcomesOfRefusal } from '#attestation/nitro/facts.ts'
import { type AttestationPolicy, resolvePolicy } from '#attestation/nitro/policy.ts'

const outcomesOf = (code: AttestationCode, policy: Partial<AttestationPolicy> = {}) =>
  outcomesOfRefusal(
    new AttestationError(code, 'why'),
    resolvePolicy({ measurements: 'any', ...policy }),
  )
const rulesThat = (outcome: string, ...args: Parameters<typeof outcomesOf>) =>
  outcomesOf(...args)
    .filter((entry) => entry.outcome === outcome)
    .map(({ rule }) => rule)
const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1)

it('a refused document has an outcome for each rule, and the broken rule failed', () => {
  const outcomes = outcomesOf('nonce_mismatch')
  expect(outcomes.map(({ rule }) => rule)).toEqual(upTo(25))
  expect(outcomes.filter(({ outcome }) => outcome === 'failed')).toEqual([
    { rule: 22, title: 'nonce', outcome: 'failed', detail: 'nonce_mismatch: why' },
  ])
})

it('the outcomes claim nothing about rules in the same stage or a later stage', () => {
  expect(rulesThat('passed', 'unprotected_header_not_empty')).toEqual([])
  expect(rulesThat('passed', 'signature_invalid')).toEqual(upTo(18))
})

it('the outcomes do not claim strict CBOR when the payload was refused', () => {
  expect(rulesThat('passed', 'payload_duplicate_key')).toEqual(upTo(5))
  expect(rulesThat('passed', 'root_untrusted')).toEqual(upTo(12))
})

it('the outcomes claim the rules of policy that were checked before', () => {
  expect(rulesThat('passed', 'measurement_mismatch')).toEqual([...upTo(18), 20, 21, 23])
})

it('the outcomes never call a rule passed that the policy did not ask for', () => {
  expect(rulesThat('passed', 'measurement_mismatch', { allowDebug: true })).not.toContain(23)
  expect(rulesThat('passed', 'debug_mode')).not.toContain(22)
  const revoked = [{ issuer: new Uint8Array(1), serial: new Uint8Array(1) }]
  expect(rulesThat('passed', 'debug_mode', { revoked, nonce: new Uint8Array(1) })).toEqual(upTo(22))
})
