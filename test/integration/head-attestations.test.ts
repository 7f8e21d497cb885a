import { createHash, X509Certificate } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { HeadAttestation } from '#attestation/evidence/head-attestation-form.ts'
import { verifyHeadAttestation } from '#attestation/evidence/verify-head-attestation.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { createRpc } from '#client/rpc.ts'
import { fetchBlockHashes } from '#src/chain/chain-reads.ts'
import { type Affidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'

let service: Affidavit
let folder = ''

beforeAll(async () => {
  folder = await makeDataFolder()
  service = await startAffidavit({
    dataFolder: folder,
    variables: { HEAD_ATTESTATION_INTERVAL_MS: '1000' },
  })
}, 60_000)
afterAll(async () => {
  await service.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Calls as an outsider, without a key. */
async function get<Body>(path: string): Promise<Body> {
  const response = await fetch(service.url + path)
  expect(response.status).toBe(200)
  return (await response.json()) as Body
}

async function complete(): Promise<void> {
  const response = await fetch(`${service.url}/v1/verified/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'When?' }] }),
  })
  expect(response.status).toBe(200)
}

type Log = {
  readonly notary: string
  readonly boot_configuration: JsonObject
  readonly chain_id: number
}

it('the heads of a log come with attestations that an outsider verifies, before and after a leaf', async () => {
  const { logs } = await get<{ readonly logs: readonly Log[] }>('/v1/log')
  const [log] = logs
  if (log === undefined) throw new Error('expected a log')
  const attestations = async () =>
    (await get<{ attestations: readonly HeadAttestation[] }>(`/v1/log/${log.notary}/heads`))
      .attestations
  await expect
    .poll(async () => (await attestations()).length, { timeout: 30_000 })
    .toBeGreaterThan(0)
  await complete()
  const last = async () => (await attestations()).at(-1)?.size
  await expect.poll(last, { timeout: 30_000 }).toBe(1)
  const rpc = createRpc({ url: service.rpcUrl })
  const roots = [await readRoot(service.rootFile)]
  try {
    const newestBlock = Number(await rpc.call('eth_blockNumber', []))
    for (const attestation of await attestations()) {
      const hashes = await fetchBlockHashes(rpc, [attestation.block_number])
      const blockHash = hashes.get(attestation.block_number) ?? null
      const chain = { chainId: log.chain_id, blockHash, newestBlock }
      const report = await verifyHeadAttestation(
        { ...attestation },
        { notary: log.notary, bootConfiguration: log.boot_configuration },
        { roots },
        { chain },
      )
      expect(report).toMatchObject({
        verdict: 'consistent',
        open: ['measurements', 'expected configuration'],
        facts: { size: attestation.size, notBefore: { number: attestation.block_number } },
      })
    }
  } finally {
    await rpc.close()
  }
})

async function readRoot(file: string): Promise<Uint8Array> {
  return createHash('sha256')
    .update(new X509Certificate(await readFile(file)).raw)
    .digest()
}
