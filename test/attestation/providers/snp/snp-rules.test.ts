import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { AMD_ROOTS } from '#attestation/providers/snp/policy.ts'
import {
  SNP_CHECKS,
  SNP_CODES,
  SNP_RULES,
  type SnpCheckName,
} from '#attestation/providers/snp/snp-rules.ts'
import { verifySnpReport } from '#attestation/providers/snp/verify-snp-report.ts'
import { SNP_AT } from '../../../support/provider-builder/snp-pki.ts'
import { buildSnp, SNP_MEASUREMENT } from '../../../support/provider-builder/snp-report-builder.ts'
import { listNumberedRules } from '../../../support/provider-cases/rule-rows.ts'
import { caseOf, snpAcceptances, snpRefusals } from '../../../support/provider-cases/snp-cases.ts'

describe('a rule of reports', () => {
  it.each(snpAcceptances)('rule $rule of reports accepts $name', async (acceptance) => {
    const { evidence, policy } = caseOf(acceptance)
    const { facts, checks } = await verifySnpReport(evidence, policy, acceptance.at ?? SNP_AT)
    expect(() => requireChecks(checks)).not.toThrow()
    expect(checks.map(({ name }) => name)).toEqual(Object.keys(SNP_CHECKS))
    expect(facts?.measurement).toEqual(SNP_MEASUREMENT)
  })

  it.each(snpRefusals)('verifySnpReport refuses with $code: $name', async (refusal) => {
    const { evidence, policy } = caseOf(refusal)
    const { facts, checks } = await verifySnpReport(evidence, policy, refusal.at ?? SNP_AT)
    const failed = checks.filter(({ outcome }) => outcome === 'failed')
    const name = SNP_RULES[SNP_CODES[refusal.code]]
    expect(failed.map((check) => [check.code, check.name])).toEqual([[refusal.code, name]])
    expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
    expect(facts === null).toBe(AUTHENTICITY.has(name))
  })

  it.each(snpRefusals)('rules.md says which checks $code leaves out: $name', async (refusal) => {
    const { evidence, policy } = caseOf(refusal)
    const { checks } = await verifySnpReport(evidence, policy, refusal.at ?? SNP_AT)
    const passed = new Set(
      checks.filter(({ outcome }) => outcome === 'passed').map(({ name }) => name),
    )
    for (const { name, outcome, isWaived } of checks) {
      if (isWaived) continue
      const needed = NEEDED_BY[name]
      const isMade = needed === null || passed.has(needed)
      expect([name, outcome !== 'not checked']).toEqual([name, isMade])
    }
  })

  it('a report without the list that the policy needs is refused as not checked', async () => {
    const { evidence, policy } = buildSnp()
    const { needsRevocationList: _, ...rest } = policy
    const { checks } = await verifySnpReport(evidence, rest, SNP_AT)
    expect(
      checks.filter(({ outcome, isWaived }) => outcome === 'not checked' && !isWaived),
    ).toEqual([expect.objectContaining({ name: 'revocation' })])
    expect(() => requireChecks(checks)).toThrow('revocation')
  })
})

/** The checks without which a report establishes no facts. */
const AUTHENTICITY: ReadonlySet<string> = new Set([
  'report layout',
  'certificate chain',
  'report signature',
  'product',
  'TCB of the certificate',
])

/** The order in rules.md: the check that must have passed before a check is made. */
const NEEDED_BY: Readonly<Record<SnpCheckName, SnpCheckName | null>> = {
  'report layout': null,
  'certificate chain': 'report layout',
  revocation: 'certificate chain',
  'report signature': 'certificate chain',
  product: 'report signature',
  'TCB of the certificate': 'product',
  chip: 'product',
  'debug and migration off': 'TCB of the certificate',
  VMPL: 'TCB of the certificate',
  'TCB floor': 'TCB of the certificate',
  measurement: 'TCB of the certificate',
  'host data': 'TCB of the certificate',
  'report data': 'TCB of the certificate',
}

describe('the cases of reports', () => {
  it('the cases of reports have a refusal for each code', () => {
    const tried = new Set<string>(snpRefusals.map(({ code }) => code))
    expect(Object.keys(SNP_CODES).filter((code) => !tried.has(code))).toEqual([])
  })

  it('the cases of reports have an acceptance for each rule', () => {
    const tried = new Set<number>(snpAcceptances.map(({ rule }) => rule))
    expect(Object.keys(SNP_RULES).filter((rule) => !tried.has(Number(rule)))).toEqual([])
  })
})

describe('rules.md of reports', () => {
  const file = join(import.meta.dirname, '../../../../attestation/providers/snp/rules.md')
  const page = readFileSync(file, 'utf8')

  it('rules.md of reports has a row for each rule with all its codes, and no others', () => {
    expect(listNumberedRules(page)).toEqual(
      Object.entries(SNP_RULES).map(([rule, check]) => ({
        rule: Number(rule),
        check,
        codes: Object.entries(SNP_CODES).flatMap(([code, broken]) =>
          broken === Number(rule) ? [code] : [],
        ),
      })),
    )
  })

  it("rules.md of reports has the fingerprints of AMD's roots and no others", () => {
    const pinned = Object.values(AMD_ROOTS).flatMap((roots) => roots.map(encodeHex))
    expect(page.match(/\b[0-9a-f]{64}\b/g)).toEqual(pinned)
  })
})
