import { expect, it } from 'vitest'
import {
  type EvidenceBundle,
  parseEvidenceBundle,
  redactBundle,
  redactedParts,
} from '#attestation/evidence/bundle.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { removeAt, replaceAt, valueAt } from '../mutate-json.ts'
import { buildEvidence } from './build-evidence.ts'

const { bundle, policy, chain } = buildEvidence()
const PARTS = ['request', 'response'] as const

it.each(PARTS)(
  'redactBundle leaves only the hash of the %s and everything else as it was',
  (part) => {
    const redacted = redactBundle(bundle, { [part]: true })
    expect(redacted.record).not.toHaveProperty(part)
    expect(valueAt(redacted, ['record', `${part}_hash`])).toBe(
      bundle.record.receipt[`${part}_hash`],
    )
    expect(removeAt(redacted, ['record', `${part}_hash`])).toEqual(
      removeAt(bundle, ['record', part]),
    )
    expect(redactedParts(redacted.record)).toEqual([part])
    expect(parseEvidenceBundle(redacted)).toEqual(redacted)
  },
)

it('redactBundle leaves out both parts, at once or one after the other, and nothing twice', () => {
  const both = redactBundle(bundle, { request: true, response: true })
  const oneByOne = redactBundle(redactBundle(bundle, { response: true }), { request: true })
  expect(oneByOne).toEqual(both)
  expect(redactBundle(both, { request: true, response: true })).toEqual(both)
  expect(redactedParts(both.record)).toEqual(['request', 'response'])
})

it('redactBundle leaves a bundle alone when nothing is to be left out', () => {
  expect(redactBundle(bundle, {})).toEqual(bundle)
  expect(redactBundle(bundle, { request: false, response: false })).toEqual(bundle)
})

it('redactBundle leaves nothing of the text that was left out', () => {
  const both = JSON.stringify(redactBundle(bundle, { request: true, response: true }))
  for (const text of ['Größe', 'Answer in one word', 'groß', 'finish_reason'])
    expect([JSON.stringify(bundle).includes(text), both.includes(text)]).toEqual([true, false])
})

const redacted = redactBundle(bundle, { request: true, response: true })
const erased = { at: 1_795_000_000, by: 'operator', reason: 'asked for' }
const withErased = (statement: Json): Json =>
  ({ ...redacted, record: { ...redacted.record, erased: statement } }) as unknown as Json

it('the report tells of the erasure, and every check has the same outcome as without the statement', async () => {
  const before = await verifyBundle(redacted, policy, { chain })
  const report = await verifyBundle(withErased(erased), policy, { chain })
  expect(report).toEqual({ ...before, erased })
  expect(before.erased).toBeNull()
})

it.each<[string, Json]>([
  ['is no object', 'erased'],
  ['lacks a member', { at: 1, by: 'operator' }],
  ['has another one', { ...erased, more: 1 }],
  ['names an unknown eraser', { ...erased, by: 'nobody' }],
  ['is of a time before 1970', { ...erased, at: -1 }],
  ['is of half a second', { ...erased, at: 0.5 }],
  ['has no reason', { ...erased, reason: '' }],
  ['has a reason that moves a cursor', { ...erased, reason: 'a\u001b[2Jb' }],
  ['has a reason with a soft hyphen (Cf)', { ...erased, reason: 'data\u00adbase' }],
  ['has a reason with a joiner (Cf)', { ...erased, reason: '👨\u200d👩' }],
  ['has a reason with half a character (Cs)', { ...erased, reason: 'a\ud800' }],
  ['has a reason with a line separator (Zl)', { ...erased, reason: 'a\u2028b' }],
  ['has a reason with a paragraph separator (Zp)', { ...erased, reason: 'a\u2029b' }],
  ['has too long a reason', { ...erased, reason: 'a'.repeat(501) }],
])('a bundle is invalid when its statement of erasure %s', async (_, statement) => {
  const report = await verifyBundle(withErased(statement), policy, { chain })
  expect(report).toMatchObject({ verdict: 'invalid', facts: null, erased: null })
  expect(report.checks[0]).toMatchObject({ name: 'format', outcome: 'failed' })
})

// It is the gateway's word, as attestation/evidence/formats.md says.
it('verifyBundle does not detect another statement of erasure in place of the first', async () => {
  const other = { at: 1, by: 'account', reason: '😀'.repeat(500) }
  const report = await verifyBundle(withErased(other), policy, { chain })
  expect(report).toMatchObject({ verdict: 'incomplete', erased: other })
})

it('a hash, null or another object in place of the request does not pass for redaction', async () => {
  const hash = bundle.record.receipt.request_hash
  const disguises: readonly Json[] = [{ request_hash: hash }, { sha256: hash }, {}]
  for (const disguise of disguises)
    expect(await failedOf(replaceAt(bundle, ['record', 'request'], disguise))).toContain(
      'request hash',
    )
  for (const disguise of [hash, null])
    expect(await failedOf(replaceAt(bundle, ['record', 'request'], disguise))).toEqual(['format'])
  expect(await failedOf(removeAt(bundle, ['record', 'request']))).toEqual(['format'])
})

it('redaction does not hide a part that can be guessed, since its hash has no salt', () => {
  const secret = replaceAt(bundle, ['record', 'request', 'seed'], 4) as EvidenceBundle
  const hashes = [3, 4, 5].map((seed) => {
    const guess = replaceAt(bundle, ['record', 'request', 'seed'], seed) as EvidenceBundle
    return hashOf(redactBundle(guess, { request: true }))
  })
  expect(hashes.indexOf(hashOf(redactBundle(secret, { request: true })))).toBe(1)
})

function hashOf(redacted: EvidenceBundle): Json {
  return valueAt(redacted, ['record', 'request_hash'])
}

async function failedOf(changed: Json): Promise<readonly string[]> {
  const { checks, verdict } = await verifyBundle(changed, policy, { chain })
  const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  expect(verdict).toBe(failed.length > 0 ? 'invalid' : 'incomplete')
  return failed
}
