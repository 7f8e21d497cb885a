import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  type ProviderEvidence,
  writeProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { verifyProviderEvidence } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { kept } from '../../../support/provider-builder/evidence-builder.ts'
import { PROVIDER_FIXTURES, readProviderFixture } from '../../../support/provider-fixtures.ts'

const AT = new Date('2026-01-23T00:00:00Z')

function evidenceOf(parts: Partial<ProviderEvidence>): ProviderEvidence {
  const common = { fetchedAtMs: AT.getTime(), block: null, responses: [], collateral: [] }
  const nonce = new Uint8Array(32).fill(1)
  return { kind: 'tinfoil', origin: 'https://inference.tinfoil.sh', nonce, ...common, ...parts }
}

function jsonOf(file: string) {
  return JSON.parse(Buffer.from(readProviderFixture(file)).toString())
}

function tinfoilEvidence(change: (report: { format: string; body: string }) => void = () => {}) {
  const bundle = jsonOf('snp/tinfoil-attestation-bundle.json')
  change(bundle.enclaveAttestationReport)
  const amd = 'https://kdsintf.amd.com/vcek/v1/Genoa'
  const github = 'https://api.github.com/repos/tinfoilsh/confidential-model-router/attestations'
  return evidenceOf({
    responses: [
      kept(
        'https://inference.tinfoil.sh/.well-known/tinfoil-attestation',
        JSON.stringify(bundle.enclaveAttestationReport),
      ),
    ],
    collateral: [
      kept(`${amd}/cert_chain`, readProviderFixture('snp/gosev-ask_ark_genoa.pem')),
      kept(`${amd}/${'1a'.repeat(64)}`, Buffer.from(bundle.vcek, 'base64')),
      kept(`${github}/sha256:${bundle.digest}`, JSON.stringify(bundle.sigstoreBundle)),
    ],
  })
}

const exampleOf = (name: string) =>
  JSON.parse(readFileSync(`docs/provider-policies/${name}.json`, 'utf8')).providers

/** The example policy with the floors of the machine's time. */
const policyOfItsTime = () => {
  const file = exampleOf('tinfoil')
  file.snp.floors.Genoa = { bootloader: 7, tee: 0, snp: 14, microcode: 72 }
  return file
}
const parse = (file: object) => parseProviderPolicy(Buffer.from(JSON.stringify(file)))

describe.skipIf(!PROVIDER_FIXTURES.isMet)(PROVIDER_FIXTURES.title('real evidence'), () => {
  it('the bundle of Tinfoil is accepted with the floors of its time, with the facts of its manifest', async () => {
    const bytes = writeProviderEvidence(tinfoilEvidence())
    const { facts, checks } = await verifyProviderEvidence(bytes, parse(policyOfItsTime()), AT)
    requireChecks(checks)
    const { files } = jsonOf('manifest.json')
    const { facts: stated } = files.find(
      ({ file }: { readonly file: string }) => file === 'snp/tinfoil-attestation-bundle.json',
    )
    expect(facts).toMatchObject({
      tee: 'SEV-SNP',
      measurements: { measurement: stated.measurement },
      tlsKeys: [{ spkiSha256: stated.spki }],
      encryptionKey: stated.hpke,
      code: { release: 'v0.0.38', digest: stated.digest },
      model: { weights: 'unknown' },
      hasReplacedRoots: false,
    })
  })

  it('the bundle of Tinfoil is refused by a policy for another tag', async () => {
    const file = policyOfItsTime()
    file.release.refs = ['refs/tags/v0.0.37']
    const bytes = writeProviderEvidence(tinfoilEvidence())
    const { checks } = await verifyProviderEvidence(bytes, parse(file), AT)
    expect(() => requireChecks(checks)).toThrow(expect.objectContaining({ code: 'identity_ref' }))
  })

  it('the bundle of Tinfoil is below the floors of the example policy alone', async () => {
    const bytes = writeProviderEvidence(tinfoilEvidence())
    const { checks } = await verifyProviderEvidence(bytes, parse(exampleOf('tinfoil')), AT)
    const failed = checks.filter(({ outcome }) => outcome === 'failed')
    expect(failed.map(({ name, code }) => [name, code])).toEqual([
      ['SEV-SNP: TCB floor', 'tcb_below_floor'],
    ])
  })

  it('a report of dstack shows its application, and binds no TLS key', async () => {
    const report = jsonOf('dstack/quote-report.json')
    const origin = 'https://service.example'
    const answer = {
      intel_quote: report.quote,
      event_log: report.event_log,
      signing_address: '00'.repeat(20),
      tls_cert_fingerprint: '00'.repeat(32),
    }
    const evidence = evidenceOf({
      kind: 'dstack',
      origin,
      responses: [kept(`${origin}/v1/attestation/report`, JSON.stringify(answer))],
    })
    const policy = parse(exampleOf('dstack'))
    const { facts, checks } = await verifyProviderEvidence(
      writeProviderEvidence(evidence),
      policy,
      AT,
    )
    const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ code }) => code)
    expect(failed).toEqual(['challenge_mismatch', 'key_binding_mismatch'])
    expect(facts).toMatchObject({
      tee: 'TDX',
      tlsKeys: [],
      tcb: null,
      code: { digest: '3763bc34552cf3a27ff71ad5f7a90471562a1a2df552dfc1998cba2d60da27e7' },
    })
  })
})
