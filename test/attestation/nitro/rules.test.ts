import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { ATTESTATION_CODES, AttestationError, RULES } from '#attestation/nitro/attestation-error.ts'
import { DER_TAGS } from '#attestation/nitro/der.ts'
import { AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import { verifyAttestation } from '#attestation/nitro/verify-attestation.ts'
import { acceptances, refusals } from '../../support/nitro-cases/all-cases.ts'
import { policyOf, timeOf } from '../../support/nitro-cases/case.ts'

it.each(acceptances)('rule $rule accepts $name', async (acceptance) => {
  const facts = await verifyAttestation(
    acceptance.document,
    policyOf(acceptance),
    timeOf(acceptance),
  )
  expect(facts.rules).toHaveLength(25)
  expect(facts.rules.filter(({ outcome }) => outcome === 'failed')).toEqual([])
})

it.each(refusals)('verifyAttestation refuses with $code: $name', async (refusal) => {
  const verification = verifyAttestation(refusal.document, policyOf(refusal), timeOf(refusal))
  const error: unknown = await verification.then(
    () => 'accepted',
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(AttestationError)
  expect(error).toMatchObject({ code: refusal.code, rule: ATTESTATION_CODES[refusal.code] })
})

it('the cases have a refusal for each code', () => {
  const tried = new Set<string>(refusals.map(({ code }) => code))
  expect(Object.keys(ATTESTATION_CODES).filter((code) => !tried.has(code))).toEqual([])
})

it('the cases have an acceptance for each rule', () => {
  const tried = new Set<number>(acceptances.map(({ rule }) => rule))
  expect(Object.keys(RULES).filter((rule) => !tried.has(Number(rule)))).toEqual([])
})

it('the cases have a refusal for each rule but 25, which only reports', () => {
  const tried = new Set<number>(refusals.map(({ code }) => ATTESTATION_CODES[code]))
  expect(Object.keys(RULES).filter((rule) => !tried.has(Number(rule)))).toEqual(['25'])
})

const page = readFileSync(join(import.meta.dirname, '../../../attestation/nitro/rules.md'), 'utf8')

it('rules.md has a row for each rule with all its codes, and no others', () => {
  const rows = page.matchAll(/^\| +(\d+) \| (\w+) +\| .* \| (.*?) +\|$/gm)
  const listed = [...rows].map(([, rule, stage, codes = '']) => [
    Number(rule),
    stage,
    codes.match(/\w+/g),
  ])
  const codesOf = (rule: number) =>
    Object.entries(ATTESTATION_CODES).flatMap(([code, broken]) => (broken === rule ? [code] : []))
  const expected = Object.entries(RULES).map(([rule, { stage }]) => [
    Number(rule),
    stage,
    codesOf(Number(rule)),
  ])
  expect(listed).toEqual(expected.map((row) => (row[0] === 25 ? [25, 'policy', ['none']] : row)))
})

it("rules.md has the fingerprint of AWS's root and no other fingerprint", () => {
  expect(page.match(/\b[0-9a-f]{64}\b/g)).toEqual([encodeHex(AWS_ROOT_SHA256)])
})

it('rules.md lists the types that certificates are made of', () => {
  const [, list = ''] = /exactly these identifiers: ([^.]*)\./.exec(page) ?? []
  const listed = list.split(',').map((item) => Number.parseInt(item.trim(), 16))
  expect(listed).toEqual(Object.values(DER_TAGS))
})
