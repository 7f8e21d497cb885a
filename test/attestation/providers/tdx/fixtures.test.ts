import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { P256 } from '#attestation/nitro/ecdsa.ts'
import { readSignedResponse } from '#attestation/providers/tdx/collateral.ts'
import { parseQeIdentity, parseTcbInfo } from '#attestation/providers/tdx/tcb-info.ts'
import type { TdxPolicy } from '#attestation/providers/tdx/tdx-policy.ts'
import { INTEL_ROOT_SHA256 } from '#attestation/providers/tdx/tdx-policy.ts'
import { verifyTdxQuote } from '#attestation/providers/tdx/verify-tdx-quote.ts'
import { parseLists } from '#attestation/revocation/parse-lists.ts'
import {
  listProviderFixtures,
  PROVIDER_FIXTURES,
  readProviderFixture,
  readTdxCollateral,
} from '../../../support/provider-fixtures.ts'

const { isMet, title } = PROVIDER_FIXTURES
const QUOTE = 'tdx/dcapqvl-tdx_quote.bin'
const OUTDATED = 'tdx/dcapqvl-tdx_quote_outdated.bin'
const SIGNATURES = ['format', 'PCK chain', 'QE report', 'attestation key', 'quote signature']

async function judge(
  file: string,
  {
    at,
    collateral = null,
    policy = {},
  }: {
    readonly at: string
    readonly collateral?: string | null
    readonly policy?: Partial<TdxPolicy>
  },
) {
  const judgement = await verifyTdxQuote(
    {
      quote: readProviderFixture(file),
      collateral: collateral === null ? null : readTdxCollateral(collateral),
    },
    { measurements: 'any', evaluationNumberMin: 18, ...policy },
    new Date(at),
  )
  const codes = judgement.checks.flatMap(({ code }) => (code === null ? [] : [code]))
  const passed = judgement.checks.flatMap(({ name, outcome }) =>
    outcome === 'passed' ? [name] : [],
  )
  return { ...judgement, codes, passed }
}

describe.skipIf(!isMet)(title('real quotes'), () => {
  const collateral = 'tdx/dcapqvl-tdx_quote.collateral.json'

  it('a quote with its collateral is up to date within its window', async () => {
    const policy = { evaluationNumberMin: 17 }
    for (const at of ['2025-06-19T10:32:27Z', '2025-07-01T00:00:00Z', '2025-07-19T10:00:35Z']) {
      const { facts, codes } = await judge(QUOTE, { at, collateral, policy })
      expect(codes).toEqual([])
      expect(facts).toMatchObject({ fmspc: 'b0c06f000000', tcb: { status: 'UpToDate' } })
      expect(encodeHex(facts?.body.mrTd ?? new Uint8Array())).toMatch(/^91eb2b44d141d4ec.*3118b7$/)
      expect(facts?.window).toEqual({
        fromMs: Date.parse('2025-06-19T10:32:27Z'),
        toMs: Date.parse('2025-07-19T10:00:35Z'),
      })
    }
  })

  it('a quote is refused a second before and after its window', async () => {
    const policy = { evaluationNumberMin: 17 }
    const early = await judge(QUOTE, { at: '2025-06-19T10:32:26Z', collateral, policy })
    expect(early.codes).toEqual(['qe_identity_not_yet_valid'])
    const late = await judge(QUOTE, { at: '2025-07-19T10:00:36Z', collateral, policy })
    expect(late.codes).toEqual(['revocation_list_expired'])
  })

  it('a floor refuses collateral before the last recovery', async () => {
    const { codes } = await judge(QUOTE, { at: '2025-07-01T00:00:00Z', collateral })
    expect(codes).toEqual(['tcb_info_too_old', 'qe_identity_too_old'])
  })

  it('an outdated platform has signatures that hold and no level', async () => {
    const { codes, passed } = await judge(OUTDATED, {
      at: '2026-03-01T00:00:00Z',
      collateral: 'tdx/dcapqvl-tdx_quote_outdated.collateral.json',
    })
    expect(codes).toEqual(['tcb_level_missing'])
    expect(passed).toEqual(expect.arrayContaining([...SIGNATURES, 'revocation', 'TCB info']))
  })

  it("a quote's signatures hold without collateral, and its TCB stays open", async () => {
    for (const [file, at] of [
      ['tdx/dcapqvl-quote-from-tappd.hex', '2025-07-01T00:00:00Z'],
      ['tdx/dcapqvl-tdx-quote.hex', '2025-07-01T00:00:00Z'],
      ['tdx/gotdx-quote_v5_sample.dat', '2026-03-01T00:00:00Z'],
      ['tdx/gotdx-tdx_prod_quote_SPR_E4.dat', '2023-07-01T00:00:00Z'],
    ] as const) {
      const { passed, facts, checks } = await judge(file, { at })
      expect(passed, file).toEqual(expect.arrayContaining(SIGNATURES))
      expect(facts?.tcb, file).toBeNull()
      const status = checks.find(({ name }) => name === 'TCB status')
      expect(status, file).toMatchObject({ outcome: 'not checked', isWaived: false })
    }
  })

  it('a TD without SEPT_VE_DISABLE is refused by the default policy', async () => {
    const file = 'tdx/gotdx-tdx_prod_quote_SPR_E4.dat'
    const { codes } = await judge(file, { at: '2023-07-01T00:00:00Z' })
    expect(codes).toEqual(['td_attributes_missing'])
  })

  it("Intel's responses and lists are read as they were served", () => {
    const responses = listProviderFixtures('tdx/gotdx-sample_tcb')
    expect(responses).toHaveLength(2)
    for (const file of responses) {
      const body = readProviderFixture(file)
      const { signed } = readSignedResponse(body, { member: 'tcbInfo', issuerChain: '%2D' })
      expect(parseTcbInfo(signed)).toMatchObject({ id: 'TDX', version: 3, pceId: '0000' })
      expect(Buffer.from(body).includes(Buffer.from(signed))).toBe(true)
    }
    const identity = readSignedResponse(
      readProviderFixture('tdx/gotdx-sample_qeIdentity_response'),
      { member: 'enclaveIdentity', issuerChain: '' },
    )
    expect(parseQeIdentity(identity.signed)).toMatchObject({ id: 'TD_QE', evaluationNumber: 15 })
    for (const file of ['tdx/gotdx-pckcrl', 'tdx/gotdx-rootcrl.der'])
      expect(parseLists(readProviderFixture(file), file, P256)).toHaveLength(1)
  })

  it("the built-in root is Intel's", async () => {
    const der = readProviderFixture('tdx/intel-sgx-root-ca.der')
    const digest = await globalThis.crypto.subtle.digest('SHA-256', der)
    expect(new Uint8Array(digest)).toEqual(INTEL_ROOT_SHA256)
  })
})
