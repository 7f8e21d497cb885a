import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { readCertificate } from '#attestation/nitro/certificate.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { readSnpChain, verifySnpLinks } from '#attestation/providers/snp/chain.ts'
import { AMD_ROOTS } from '#attestation/providers/snp/policy.ts'
import { verifyPss } from '#attestation/providers/snp/rsa-pss.ts'
import { hardwareIdOfVek, tcbOfVek } from '#attestation/providers/snp/vek-claims.ts'
import { type SnpEvidence, verifySnpReport } from '#attestation/providers/snp/verify-snp-report.ts'
import { readProviderPem, readProviderText } from '../../../support/hardware-fixtures.ts'
import { PROVIDER_FIXTURES, readProviderFixture } from '../../../support/provider-fixtures.ts'

const title = (text: string) => PROVIDER_FIXTURES.title(text)
const real = it.runIf(PROVIDER_FIXTURES.isMet)
const nothing = new Uint8Array()

/** The ASK and the ARK of a file that has them in this order. */
function authoritiesOf(file: string): Pick<SnpEvidence, 'ask' | 'ark' | 'revocationList'> {
  const [ask = nothing, ark = nothing] = readProviderPem(`snp/${file}`)
  return { ask, ark, revocationList: null }
}

/** Without AMD's list of the product at the time. */
const lenient = { measurements: 'any', needsRevocationList: false } as const

function readTinfoil(): SnpEvidence {
  const bundle: {
    readonly vcek: string
    readonly enclaveAttestationReport: { readonly body: string }
  } = JSON.parse(readProviderText('snp/tinfoil-attestation-bundle.json'))
  return {
    ...authoritiesOf('gosev-ask_ark_genoa.pem'),
    vek: Buffer.from(bundle.vcek, 'base64'),
    report: gunzipSync(Buffer.from(bundle.enclaveAttestationReport.body, 'base64')),
  }
}

function readDstack(): SnpEvidence {
  const [vek = nothing] = readProviderPem('snp/dstack-sev_snp_vcek.pem')
  const scale = readProviderFixture('snp/dstack-sev_snp_attestation.scale.bin')
  return { ...authoritiesOf('gosev-milan.testcer'), vek, report: scale.subarray(4, 4 + 1184) }
}

function readAmd(file: string): Uint8Array {
  return new Uint8Array(readFileSync(`test/support/amd-evidence/${file}`))
}

real(
  title("a Turin's report of version 5 is accepted, with safe writes of the IOMMU"),
  async () => {
    const evidence = {
      ...authoritiesOf('gosev-ask_ark_turin_vcek.pem'),
      vek: readAmd('turin-vcek.der'),
      report: readAmd('turin-report.bin'),
    }
    const { facts, checks } = await verifySnpReport(evidence, lenient, new Date('2026-09-18'))
    requireChecks(checks)
    expect(facts).toMatchObject({
      product: 'Turin',
      version: 5,
      platform: { aliasCheck: true, iommuWriteSafe: true, trustedIo: false },
      tcbs: { reported: { fmc: 1, bootloader: 3, tee: 2, snp: 5, microcode: 97 } },
    })
  },
)

real(title("AMD's list of Genoa counts until it ends, and does not revoke the ASK"), async () => {
  const evidence = { ...readTinfoil(), revocationList: readAmd('genoa-crl.der') }
  const judge = async (at: string) =>
    await verifySnpReport(evidence, { measurements: 'any' }, new Date(at))
  const { facts, checks } = await judge('2026-09-09T00:00:00Z')
  requireChecks(checks)
  expect(facts?.endsAtMs).toBe(Date.parse('2026-09-09T00:00:00Z'))
  const late = await judge('2026-09-09T00:00:01Z')
  expect(late.checks.find(({ name }) => name === 'revocation')).toMatchObject({
    code: 'revocation_list_expired',
    detail:
      'expected a list in force at 2026-09-09T00:00:01.000Z, got its end 2026-09-09T00:00:00.000Z',
  })
})

real(title("Tinfoil's report is accepted, with its measurement, floor and keys"), async () => {
  const measurement = decodeHex(
    '09ef32acf90fcfeb6206d1a46c13145cef736ebbb83f18eaff680b686232031546ff5fd39c44599699ee8734cbbeb519',
  )
  const reportData = decodeHex(
    '71c31f35d2b06077bbae7c1ddf0cc4020408c8f39c68b04cf3d029d40bdd45e73565781f4ee796cfb144df2a31a3ae5e87747bb5ba91aafc6b80e2e268b8603d',
  )
  const floors = { Genoa: { bootloader: 7, tee: 0, snp: 14, microcode: 72 } }
  const policy = { ...lenient, measurements: [measurement], reportData, floors }
  const at = new Date('2026-02-01')
  const { facts, checks } = await verifySnpReport(readTinfoil(), policy, at)
  requireChecks(checks)
  expect(facts).toMatchObject({ product: 'Genoa', signer: 'VCEK', isProvisional: false })
})

real(title("Tinfoil's report is refused for another measurement or a higher floor"), async () => {
  const floors = { Genoa: { bootloader: 11, tee: 0, snp: 14, microcode: 72 } }
  const policy = { ...lenient, measurements: [new Uint8Array(48)], floors }
  const { checks } = await verifySnpReport(readTinfoil(), policy, new Date('2026-02-01'))
  const codes = checks.flatMap(({ code }) => code ?? [])
  expect(codes).toEqual(['tcb_below_floor', 'measurement_mismatch'])
})

real(title("Tinfoil's certificate is refused after seven years"), async () => {
  const { checks } = await verifySnpReport(readTinfoil(), lenient, new Date('2034-01-01'))
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['certificate_expired'])
})

real(title("dstack's report is accepted, with a reported TCB behind the current"), async () => {
  const hostData = decodeHex('783f0057820acb99249af56cc3b07b4e8d80f65183167cba9cf437bb680f742f')
  const policy = { ...lenient, hostData: [hostData] }
  const at = new Date('2026-07-01')
  const { facts, checks } = await verifySnpReport(readDstack(), policy, at)
  requireChecks(checks)
  expect(facts).toMatchObject({
    product: 'Milan',
    isReportedBehind: true,
    isProvisional: false,
    tcbs: { reported: { snp: 23 }, current: { snp: 24 }, committed: { snp: 24 } },
  })
  const text = new TextDecoder().decode(facts?.reportData)
  expect(text.replaceAll('\0', '')).toBe('attest-test-fixture-2026')
})

real(title("dstack's verifier fixture holds the same report and certificates"), () => {
  const { attestation }: { readonly attestation: string } = JSON.parse(
    readProviderText('snp/dstack-verifier-sev-snp-attestation.json'),
  )
  const { report, vek } = readDstack()
  const bytes = Buffer.from(attestation, 'hex')
  expect(bytes.includes(Buffer.from(report))).toBe(true)
  const pem = Buffer.from(vek).toString('base64').slice(0, 64)
  expect(bytes.includes(Buffer.from(vek)) || bytes.includes(pem)).toBe(true)
  const [ask = nothing] = readProviderPem('snp/dstack-sev_snp_ask.pem')
  expect(ask).toEqual(readDstack().ask)
})

real(title('a report with debugging verifies, and is refused for its policy alone'), async () => {
  const evidence = {
    ...authoritiesOf('gosev-ask_ark_milan.pem'),
    report: readProviderFixture('snp/gosev-attestation.bin'),
    vek: readProviderFixture('snp/gosev-vcek.testcer'),
  }
  const { facts, checks } = await verifySnpReport(evidence, lenient, new Date('2024-01-01'))
  expect(checks.flatMap(({ code }) => code ?? [])).toEqual(['debug_allowed'])
  expect(facts).toMatchObject({ version: 2, product: 'Milan', policy: { debug: true } })
  expect(encodeHex(facts?.measurement ?? nothing)).toMatch(/^b07af9620f3b839b.*2b01$/)
})

real(title('a real VCEK of a Turin leads to the root, with its short hardware id'), async () => {
  const { ask, ark } = authoritiesOf('virtee-cert_chain_turin')
  const vek = readProviderFixture('snp/virtee-vcek_turin.der')
  const options = { signer: 'VCEK', roots: AMD_ROOTS, atMs: Date.UTC(2026, 0) } as const
  const chain = await readSnpChain({ vek, ask, ark }, options)
  await verifySnpLinks(chain)
  expect(chain.rootProduct).toBe('Turin')
  expect(encodeHex(hardwareIdOfVek(chain.vek.opaque, 'Turin') ?? nothing)).toBe('1e550a8ee5cf9f4d')
  const tcb = { fmc: 0, bootloader: 0, tee: 0, snp: 0, microcode: 9 }
  expect(tcbOfVek(chain.vek.opaque, 'Turin')).toEqual(tcb)
})

real(title('the authorities of VCEKs and VLEKs lead to the pinned roots'), async () => {
  for (const [file, product, name] of [
    ['gosev-ask_ark_milan.pem', 'Milan', 'SEV-Milan'],
    ['gosev-ask_ark_milan_vlek.pem', 'Milan', 'SEV-VLEK-Milan'],
    ['gosev-ask_ark_genoa.pem', 'Genoa', 'SEV-Genoa'],
    ['gosev-ask_ark_genoa_vlek.pem', 'Genoa', 'SEV-VLEK-Genoa'],
    ['gosev-ask_ark_turin_vcek.pem', 'Turin', 'SEV-Turin'],
    ['gosev-ask_ark_turin_vlek.pem', 'Turin', 'SEV-VLEK-Turin'],
  ] as const) {
    const { ask, ark } = authoritiesOf(file)
    const [issued, issuer] = [ask, ark].map((der) =>
      readCertificate(new Uint8Array(der), file, { isOpaque: (type) => type === '2.5.29.15' }),
    )
    expect(issued?.subject.commonName).toBe(name)
    if (!issued || !issuer) throw new Error('expected two certificates')
    expect(await verifyPss(issuer, issued), file).toBe(true)
    const [root = nothing] = AMD_ROOTS[product] ?? []
    expect(createHash('sha256').update(ark).digest('hex'), file).toBe(encodeHex(root))
  }
})

real(title('the roots that virtee keeps are the pinned roots'), () => {
  for (const product of ['Milan', 'Genoa', 'Turin'] as const) {
    const [ark = nothing] = readProviderPem(`snp/virtee-ark-${product.toLowerCase()}.pem`)
    const fingerprint = createHash('sha256').update(ark).digest('hex')
    expect(AMD_ROOTS[product]?.map(encodeHex)).toEqual([fingerprint])
  }
})
