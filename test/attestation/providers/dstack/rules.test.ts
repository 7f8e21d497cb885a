import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import { DSTACK_CHECKS, DSTACK_CODES } from '#attestation/providers/dstack/dstack-codes.ts'
import type { DstackPolicy } from '#attestation/providers/dstack/dstack-policy.ts'
import { verifyDstackLog } from '#attestation/providers/dstack/verify-dstack-log.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { decodeTdxQuote } from '#attestation/providers/tdx/quote.ts'
import { nearly } from '../../../support/case-table.ts'
import {
  buildDstackEvidence,
  COMPOSE_HASH,
  configId,
  DSTACK_POLICY,
} from '../../../support/provider-builder/dstack-builder.ts'
import {
  brokenDstackPolicies,
  dstackAcceptances,
  dstackRefusals,
} from '../../../support/provider-cases/dstack-cases.ts'
import { PROVIDER_FIXTURES, readProviderFixture } from '../../../support/provider-fixtures.ts'

it.each(dstackAcceptances)('the check "$check" accepts $name', async (acceptance) => {
  const { policy, waived = [] } = acceptance
  const { facts, checks } = await verifyDstackLog(buildDstackEvidence(acceptance), {
    ...DSTACK_POLICY,
    ...policy,
  })
  requireChecks(checks)
  expect(checks.map(({ name }) => name)).toEqual(Object.keys(DSTACK_CHECKS))
  expect(checks.filter(({ isWaived }) => isWaived).map(({ name }) => name)).toEqual(waived)
  expect(facts?.composeHash).toEqual(COMPOSE_HASH)
})

it.each(dstackRefusals)('verifyDstackLog refuses with $code: $name', async (refusal) => {
  const { code, policy } = refusal
  const { checks } = await verifyDstackLog(buildDstackEvidence(refusal), {
    ...DSTACK_POLICY,
    ...policy,
  })
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  expect(failed.map(({ name, code: found }) => [name, found])).toEqual([[DSTACK_CODES[code], code]])
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
})

it.each(brokenDstackPolicies)('verifyDstackLog throws PolicyError for %s', async (_, policy) => {
  await expect(verifyDstackLog(buildDstackEvidence(), policy as DstackPolicy)).rejects.toThrow(
    PolicyError,
  )
})

it('a register of the quote that differs in its last bit is refused', async () => {
  const evidence = buildDstackEvidence()
  const rtmrs = evidence.body.rtmrs.map((value, index) => (index === 3 ? nearly(value) : value))
  const { checks } = await verifyDstackLog(
    { ...evidence, body: { ...evidence.body, rtmrs } },
    DSTACK_POLICY,
  )
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['register_mismatch'])
})

it('a configuration document that is not given leaves its check open', async () => {
  const { checks } = await verifyDstackLog(
    buildDstackEvidence({ mrConfigId: configId(3, COMPOSE_HASH) }),
    DSTACK_POLICY,
  )
  expect(() => requireChecks(checks)).toThrow(expect.objectContaining({ code: 'not_checked' }))
})

it('a policy that accepts any application and image leaves both checks waived', async () => {
  const { facts, checks } = await verifyDstackLog(buildDstackEvidence(), {
    composeHashes: 'any',
    images: 'any',
  })
  requireChecks(checks)
  expect(facts?.osImageHash).toBeNull()
})

describe.skipIf(!PROVIDER_FIXTURES.isMet)(PROVIDER_FIXTURES.title('a real log'), () => {
  it('a real log replays to its quote, and the event after system-ready is not trusted', async () => {
    const report = JSON.parse(
      Buffer.from(readProviderFixture('dstack/quote-report.json')).toString(),
    )
    const { body } = decodeTdxQuote(Buffer.from(report.quote, 'hex'))
    const eventLog = Buffer.from(report.event_log)
    const compose = '3763bc34552cf3a27ff71ad5f7a90471562a1a2df552dfc1998cba2d60da27e7'
    const { facts, checks } = await verifyDstackLog(
      { body, eventLog, appCompose: null, configDocument: null },
      { composeHashes: [Buffer.from(compose, 'hex')], images: 'any' },
    )
    requireChecks(checks)
    expect(encodeHex(facts?.appId ?? new Uint8Array())).toBe(compose.slice(0, 40))
    expect(report.event_log).toContain('LIUM_MINER_HOTKEY')
    const names = checks.find(({ name }) => name === 'system events')?.detail
    expect(names).toBe(
      'system-preparing, app-id, compose-hash, instance-id, boot-mr-done, key-provider',
    )
  })
})
