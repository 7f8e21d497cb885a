import { expect, it } from 'vitest'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { TDX_CHECKS, TDX_CODES } from '#attestation/providers/tdx/tdx-codes.ts'
import type { TdxPolicy } from '#attestation/providers/tdx/tdx-policy.ts'
import { verifyTdxQuote } from '#attestation/providers/tdx/verify-tdx-quote.ts'
import { validityOf } from '../../../support/nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import {
  buildTdxEvidence,
  levelOf,
  platformTcb,
  TDX_POLICY,
} from '../../../support/provider-builder/tdx-builder.ts'
import {
  brokenTdxPolicies,
  tdxAcceptances,
  tdxRefusals,
} from '../../../support/provider-cases/tdx-cases.ts'

const codes: Readonly<Record<string, string>> = TDX_CODES

it.each(tdxAcceptances)('the check "$check" accepts $name', async (acceptance) => {
  const { policy, at = MADE_AT } = acceptance
  const { facts, checks } = await verifyTdxQuote(
    buildTdxEvidence(acceptance),
    { ...TDX_POLICY, ...policy },
    at,
  )
  expect(checks.filter(({ outcome }) => outcome !== 'passed')).toEqual([])
  expect(checks.map(({ name }) => name)).toEqual(Object.keys(TDX_CHECKS))
  expect(facts?.tcb).not.toBeNull()
})

it.each(tdxRefusals)('verifyTdxQuote refuses with $code: $name', async (refusal) => {
  const { code, check = codes[code] ?? 'PCK chain', policy, at = MADE_AT } = refusal
  const { checks } = await verifyTdxQuote(
    buildTdxEvidence(refusal),
    { ...TDX_POLICY, ...policy },
    at,
  )
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  expect(failed.map(({ name, code: found }) => [name, found])).toEqual([[check, code]])
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
})

it.each(brokenTdxPolicies)('verifyTdxQuote throws PolicyError for %s', async (_, policy) => {
  await expect(verifyTdxQuote(buildTdxEvidence(), policy as TdxPolicy, MADE_AT)).rejects.toThrow(
    PolicyError,
  )
})

async function messageOf(
  changes: Parameters<typeof buildTdxEvidence>[0],
  policy: Partial<TdxPolicy> = {},
) {
  const evidence = buildTdxEvidence(changes)
  const { checks } = await verifyTdxQuote(evidence, { ...TDX_POLICY, ...policy }, MADE_AT)
  return checks.find(({ outcome }) => outcome === 'failed')?.detail
}

it('a refusal of measurements names the nearest set and its other registers', async () => {
  const [zeros, ones] = [new Uint8Array(48), new Uint8Array(48).fill(1)]
  const measurements = [
    { rtmr0: ones, rtmr3: ones },
    { rtmr0: zeros, rtmr3: ones },
  ]
  expect(await messageOf({}, { measurements })).toBe(
    'expected the measurements of one of 2 sets: the nearest is set 1, but for rtmr3',
  )
})

it('a refusal of a platform names the component that is below the lowest level', async () => {
  const change = (body: Uint8Array) => void body.set([6], 2)
  expect(await messageOf({ body: change })).toBe(
    'expected a platform of a TCB level: the lowest needs TDX component 2 of 7, got 6',
  )
})

it('a refusal of an outdated platform names all that the policy lacks at once', async () => {
  const advisoryIDs = ['INTEL-SA-01036', 'INTEL-SA-01079', 'INTEL-SA-01099', 'INTEL-SA-01103']
  const tcbLevels = [levelOf(platformTcb(), { tcbStatus: 'OutOfDate', advisoryIDs })]
  const qeIdentity = {
    tcbLevels: [
      levelOf({ isvsvn: 4 }, { tcbStatus: 'SWHardeningNeeded', advisoryIDs: ['INTEL-SA-01099'] }),
    ],
  }
  const changes = { tcbInfo: { tcbLevels }, qeIdentity }
  expect(await messageOf(changes)).toBe(
    'expected accepted statuses, got SWHardeningNeeded, OutOfDate; INTEL-SA-01099, INTEL-SA-01036, INTEL-SA-01079, INTEL-SA-01103',
  )
  const statuses = ['OutOfDate', 'SWHardeningNeeded'] as const
  expect(await messageOf(changes, { statuses, advisories: ['INTEL-SA-01036'] })).toBe(
    'expected accepted advisories alone, got INTEL-SA-01099, INTEL-SA-01079, INTEL-SA-01103',
  )
})

it.each(['pck', 'platformCa', 'tcbSigning'] as const)(
  'the window is within the validity of the certificate %s',
  async (name) => {
    const from = new Date(MADE_AT.getTime() - 60_000)
    const to = new Date(MADE_AT.getTime() + 60_000)
    const evidence = buildTdxEvidence({
      certificates: { [name]: { validity: validityOf(from, to) } },
    })
    const { facts, checks } = await verifyTdxQuote(evidence, TDX_POLICY, MADE_AT)
    requireChecks(checks)
    expect(facts?.window).toEqual({ fromMs: from.getTime(), toMs: to.getTime() })
  },
)
