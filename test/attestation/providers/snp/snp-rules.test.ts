import { expect, it } from 'vitest'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import {
  SNP_CHECKS,
  SNP_CODES,
  SNP_RULES,
  type SnpCheckName,
} from '#attestation/providers/snp/snp-rules.ts'
import { verifySnpReport } from '#attestation/providers/snp/verify-snp-report.ts'
import { SNP_AT } from '../../../support/provider-builder/snp-pki.ts'
import {
  buildSnp,
  SNP_MEASUREMENT,
  SNP_TCBS,
} from '../../../support/provider-builder/snp-report-builder.ts'
import { caseOf, snpAcceptances, snpRefusals } from '../../../support/provider-cases/snp-cases.ts'

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
  // rules.md says which checks are left out after a failure.
  const passed = new Set(
    checks.filter(({ outcome }) => outcome === 'passed').map(({ name }) => name),
  )
  for (const check of checks.filter(({ isWaived }) => !isWaived)) {
    const needed = NEEDED_BY[check.name]
    const isMade = needed === null || passed.has(needed)
    expect([check.name, check.outcome !== 'not checked']).toEqual([check.name, isMade])
  }
})

it.each([
  ['the reported TCB is behind by its last byte', [0x3f, 0x1e7], true, false],
  ['the current TCB is ahead of the committed by its last byte', [0x3f], true, true],
])('the facts say when %s', async (_, offsets, isReportedBehind, isProvisional) => {
  const { evidence, policy } = buildSnp({
    report: (report) => {
      for (const offset of offsets) report[offset] = SNP_TCBS.Milan.microcode + 1
    },
  })
  const { facts } = await verifySnpReport(evidence, policy, SNP_AT)
  expect(facts).toMatchObject({ isReportedBehind, isProvisional })
})

it('a report without the list that the policy needs is refused as not checked', async () => {
  const { evidence, policy } = buildSnp()
  const { needsRevocationList: _, ...rest } = policy
  const { checks } = await verifySnpReport(evidence, rest, SNP_AT)
  expect(checks.filter(({ outcome, isWaived }) => outcome === 'not checked' && !isWaived)).toEqual([
    expect.objectContaining({ name: 'revocation' }),
  ])
  expect(() => requireChecks(checks)).toThrow('revocation')
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
  'committed firmware': 'TCB of the certificate',
  'platform info': 'TCB of the certificate',
  'accepted chip': 'TCB of the certificate',
}
