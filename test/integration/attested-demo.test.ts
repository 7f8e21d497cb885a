import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { providerNonce } from '#attestation/providers/evidence/evidence-document.ts'
import { verifyProviderEvidence } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { parsePolicy, readProviderPolicies } from '#attestation/report/policy-file.ts'
import { fetchTinfoilEvidence } from '../support/fetch-evidence.ts'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const BLOCK = { chainId: 31_337, number: 1, hash: new Uint8Array(32).fill(0xb1) }

let service: SharedAffidavit
/** The key that the provider's evidence states, under the policy that the service wrote. */
let attestedKey = ''

beforeAll(async () => {
  service = await useAffidavit()
  const { attested } = service
  const nonce = providerNonce(BLOCK.hash, attested.origin)
  const { bytes } = await fetchTinfoilEvidence(attested, { nonce, block: BLOCK })
  const policy =
    (await readProviderPolicies(parsePolicy(await readFile(attested.policyFile))))?.[0] ?? null
  const { facts, checks } = await verifyProviderEvidence(bytes, policy, new Date())
  requireChecks(checks)
  attestedKey = facts?.tlsKeys[0]?.spkiSha256 ?? ''
})

const messages = [{ role: 'user', content: 'Hello' }]

/** Calls an endpoint of verified completions. */
async function ask(path: string, body: object) {
  const reply = await fetch(`${service.url}/v1/verified${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  // biome-ignore lint/suspicious/noExplicitAny: answers of three dialects, and errors
  const answer: any = await reply.json()
  return { status: reply.status, body: answer }
}

it.each([
  ['/chat/completions', { messages }],
  ['/responses', { input: 'Hello' }],
  ['/anthropic/v1/messages', { messages, max_tokens: 50 }],
])(
  'demo/sealed answers at %s, and the receipt names the key that its evidence states',
  async (path, question) => {
    for (const model of ['demo/sealed', 'demo/unsealed']) {
      const { status, body } = await ask(path, { model, ...question })
      expect({ status, body }).toMatchObject({ status: 200 })
      // Chat has its proof at the top of the answer, the other dialects in a member.
      const { provider } = parseReceipt((body.affidavit ?? body).receipt)
      expect(provider).toMatchObject({
        name: 'demo-attested',
        origin: service.attested.origin,
        tls: { spki_sha256: attestedKey },
      })
    }
  },
)

it('a call that demands the attested key is answered, and one that demands another is refused', async () => {
  const demand = (provider_keys: readonly string[]) =>
    ask('/chat/completions', { model: 'demo/sealed', messages, affidavit: { provider_keys } })
  expect(await demand([attestedKey])).toMatchObject({ status: 200 })
  expect(await demand(['ab'.repeat(32)])).toMatchObject({
    status: 502,
    body: { error: { code: 'provider_key_mismatch' } },
  })
})

describe('a bundle of an answer of the simulated TEE', () => {
  let folder = ''
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-attested-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  /** The bundle of a new answer, with its block and the evidence that the gateway collected. */
  async function makeBundle(model: string): Promise<EvidenceBundle> {
    const { body } = await ask('/chat/completions', { model, messages })
    const url = `${service.url}/v1/verified/chat/completions/${body.hash}/evidence`
    const headers = { authorization: `Bearer ${service.apiKey}` }
    const read = async () => (await (await fetch(url, { headers })).json()) as EvidenceBundle
    await expect.poll(async () => (await read()).block, { timeout: 30_000 }).not.toBeNull()
    return await read()
  }

  /** Verifies a bundle with the program, offline. */
  async function verify(bundle: object) {
    const file = join(folder, 'bundle.json')
    await writeFile(file, JSON.stringify(bundle))
    const { rootFile, attested } = service
    const trusted = ['--any-measurement', '--root', rootFile]
    const accepted = ['--policy', attested.policyFile]
    const { code, stdout } = await runCli(['verify', file].concat(trusted, accepted))
    return { code, stdout }
  }

  it.each([
    ['demo/sealed', /^weights +proven: demo\/sealed is /m],
    ['demo/unsealed', /^weights +unknown: the measured configuration does not name/m],
  ])('a bundle of %s verifies offline with both chains: %s', async (model, weights) => {
    const { code, stdout } = await verify(await makeBundle(model))
    expect({ code, stdout }).toMatchObject({ code: 3, stdout: expect.stringMatching(weights) })
    expect(stdout).toContain('under roots of the policy that are for development')
    expect(stdout).toMatch(/passed {7}provider's key .*\n.*passed {7}provider attested/)
  })
})
