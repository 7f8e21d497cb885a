import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { parseProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import type { DemoEvidence } from '#src/providers/open-providers.ts'
import {
  type AttestedProviderServer,
  startAttestedProvider,
} from '../../support/collected-provider.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'

const HASH = `0x${'b1'.repeat(32)}`
const settled = { timeout: 20_000, interval: 100 }

type ListedProvider = {
  readonly evidence: { readonly digest: string; readonly url: string } | null
}

let provider: AttestedProviderServer
let gateway: TestGateway
let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-attested-'))
  provider = await startAttestedProvider()
  const demo: DemoEvidence = {
    origin: provider.origin,
    kind: 'tinfoil',
    caFile: join(folder, 'ca.pem'),
    policyFile: join(folder, 'policy.json'),
  }
  await writeFile(demo.caFile, provider.ca)
  await writeFile(demo.policyFile, JSON.stringify({ providers: provider.policy }))
  gateway = await startGateway({
    attested: demo,
    fetchRecentBlock: async () => ({ chainId: 1, number: 17, hash: HASH }),
    settings: {
      metrics: { host: '127.0.0.1', port: 0 },
      providers: { attested: new Map(), intervalMs: 3_600_000, origins: provider.origins },
    },
  })
  const path = '/v1/chat/completions'
  gateway.enclave.setProviders([
    { name: 'tee', origin: provider.origin, path, models: ['tee/*'] },
    { name: 'plain', origin: 'https://plain.example', path, models: ['gpt-*'] },
    { name: 'tee', origin: provider.origin, path, models: ['tee/*', 'more'] },
  ])
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await provider.stop()
  await rm(folder, { recursive: true, force: true })
})

async function list(): Promise<readonly ListedProvider[]> {
  const reply = await fetch(`${gateway.url}/v1/providers`)
  const { data } = (await reply.json()) as { readonly data: readonly ListedProvider[] }
  return data
}

it('a caller without a key gets all providers, with the evidence and keys of the attested one', async () => {
  await expect.poll(async () => (await list())[0]?.evidence ?? null, settled).not.toBeNull()
  await expect
    .poll(async () => (await list())[0], settled)
    .toMatchObject({
      keys: [{ spki_sha256: provider.key(), stated: true }],
    })
  const time = expect.any(Number)
  const digest = expect.stringMatching(/^[0-9a-f]{64}$/)
  const [tee, plain, ...others] = await list()
  expect(tee).toEqual({
    id: 'tee',
    origin: provider.origin,
    kind: 'tinfoil',
    models: ['tee/*', 'more'],
    evidence: {
      digest,
      url: `/v1/providers/evidence/${tee?.evidence?.digest}`,
      fetched_at: time,
      ends_at: null,
      block: { chain_id: 1, number: 17, hash: HASH },
    },
    keys: [{ spki_sha256: provider.key(), first_seen: time, last_seen: time, stated: true }],
  })
  expect(plain).toEqual({
    id: 'plain',
    origin: 'https://plain.example',
    kind: null,
    models: ['gpt-*'],
    evidence: null,
    keys: [],
  })
  expect(others).toEqual([])
})

it('a caller without a key gets the exact bytes of an evidence, which never change', async () => {
  await expect.poll(async () => (await list())[0]?.evidence ?? null, settled).not.toBeNull()
  const { digest = '', url = '' } = (await list())[0]?.evidence ?? {}
  const reply = await fetch(gateway.url + url)
  expect(reply.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
  expect(reply.headers.get('content-type')).toMatch(/^application\/json/)
  const bytes = new Uint8Array(await reply.arrayBuffer())
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(digest)
  expect(parseProviderEvidence(bytes)).toMatchObject({ kind: 'tinfoil', origin: provider.origin })
})

it.each([
  ['00'.repeat(32), 404, 'not_found'],
  ['xyz', 422, undefined],
])('an evidence with the digest %s is refused with %i', async (digest, status, code) => {
  const reply = await fetch(`${gateway.url}/v1/providers/evidence/${digest}`)
  expect(reply.status).toBe(status)
  if (code !== undefined) expect(await reply.json()).toMatchObject({ error: { code } })
})
