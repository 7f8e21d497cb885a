import { readFile, rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeBase64, encodeUtf8 } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundlePolicy, ChainFacts } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { parseRoots } from '#attestation/nitro/policy.ts'
import { createRpc } from '#client/rpc.ts'
import { listTree, nameProcess } from '../bench/processes.ts'
import { type Affidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'

const COMPLETIONS = '/v1/verified/chat/completions'

type LogJson = {
  readonly notary: string
  readonly size: number
  readonly head: { readonly size: number } | null
}

describe('evidence of a whole service', () => {
  let service: Affidavit
  let folder = ''
  /** From the enclave that was killed. */
  let old: { readonly hash: string; readonly bundle: EvidenceBundle; readonly policy: BundlePolicy }

  const headers = () => ({
    authorization: `Bearer ${service.apiKey}`,
    'content-type': 'application/json',
  })
  const get = async (path: string): Promise<string> => {
    const reply = await fetch(service.url + path, { headers: headers() })
    return reply.status === 200 ? reply.text() : `${reply.status}`
  }

  async function ask(text: string): Promise<string> {
    const body = JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: text }] })
    const reply = await fetch(service.url + COMPLETIONS, {
      method: 'POST',
      headers: headers(),
      body,
    })
    return reply.status === 200 ? ((await reply.json()) as { hash: string }).hash : ''
  }

  /** The completion's bundle after its anchor is in a block, as a reader of the file gets it. */
  async function fetchMinedBundle(hash: string): Promise<EvidenceBundle> {
    const read = async () =>
      parseExactJson(
        encodeUtf8(await get(`${COMPLETIONS}/${hash}/evidence`)),
      ) as never as EvidenceBundle
    await expect
      .poll(async () => (await read()).block, { timeout: 15_000, interval: 200 })
      .not.toBeNull()
    return read()
  }

  /** The expectations of a third party that examined the enclave before. */
  async function fetchPolicy(): Promise<BundlePolicy> {
    const reply = JSON.parse(await get('/v1/attestation')) as {
      readonly attestation: string
      readonly boot_configuration: JsonObject
    }
    const { pcrs } = decodeAttestationPayload(decodeBase64(reply.attestation))
    return {
      roots: parseRoots(new Uint8Array(await readFile(service.rootFile))),
      measurements: [
        new Map([0, 1, 2].map((index) => [index, pcrs.get(index) ?? new Uint8Array()])),
      ],
      configurations: [digestBootConfiguration(reply.boot_configuration)],
    }
  }

  async function fetchChain({ block }: EvidenceBundle): Promise<ChainFacts> {
    const rpc = createRpc({ url: service.rpcUrl })
    const [chainId, newest, found] = await Promise.all([
      rpc.call('eth_chainId', []),
      rpc.call('eth_blockNumber', []),
      rpc.call('eth_getBlockByNumber', [`0x${(block?.number ?? 0).toString(16)}`, false]),
    ])
    await rpc.close()
    return {
      chainId: Number(chainId),
      newestBlock: Number(newest),
      blockHash: (found as { readonly hash: string }).hash,
    }
  }

  beforeAll(async () => {
    folder = await makeDataFolder()
    service = await startAffidavit({ dataFolder: folder })
  })
  afterAll(async () => {
    await service.stop()
    await rm(folder, { recursive: true, force: true })
  })

  it('the evidence of a whole service is verified, with the policy and the chain', async () => {
    const hash = await ask('a secret that is nobody else’s')
    const policy = await fetchPolicy()
    const bundle = await fetchMinedBundle(hash)
    expect(await verifyBundle(bundle as never, policy)).toMatchObject({ verdict: 'verified' })
    const chain = await fetchChain(bundle)
    const report = await verifyBundle(bundle as never, policy, { chain })
    expect(report.checks.filter(({ outcome }) => outcome !== 'passed')).toEqual([])
    expect(report).toMatchObject({ verdict: 'verified', facts: { hash } })
    old = { hash, bundle, policy }
  })

  it('evidence verifies after its enclave was killed, beside evidence of the new key and log', async () => {
    const pid = listTree(service.pid).find(
      (candidate) => nameProcess(candidate) === 'enclave/main.ts',
    )
    process.kill(pid ?? 0, 'SIGKILL')
    let hash = ''
    const again = async () => {
      hash = await ask('after the restart').catch(() => '')
      return hash
    }
    await expect.poll(again, { timeout: 30_000, interval: 300 }).not.toBe('')
    const newer = await fetchMinedBundle(hash)
    expect(newer.record.public_key).not.toBe(old.bundle.record.public_key)
    expect(await verifyBundle(newer as never, await fetchPolicy())).toMatchObject({
      verdict: 'verified',
    })
    const same = await fetchMinedBundle(old.hash)
    expect(same).toEqual(old.bundle)
    const report = await verifyBundle(same as never, old.policy, { chain: await fetchChain(same) })
    expect(report.verdict).toBe('verified')
    const { logs } = JSON.parse(await get('/v1/log')) as { logs: readonly LogJson[] }
    expect(logs.length).toBe(2)
  })

  it('the logs are public, and do not show questions and answers', async () => {
    const list = await (await fetch(`${service.url}/v1/log`)).text()
    const { logs } = JSON.parse(list) as { logs: readonly LogJson[] }
    const answers = [list]
    for (const { notary, size } of logs)
      for (const path of ['', '/heads', '/leaves', '/inclusion?index=0', '/consistency?from=1']) {
        const reply = await fetch(`${service.url}/v1/log/${notary}${path}`)
        expect([path, size, reply.status]).toEqual([path, size, 200])
        answers.push(await reply.text())
      }
    for (const word of ['secret', 'restart', 'You said', 'demonstration]', old.hash])
      expect(answers.filter((answer) => answer.includes(word))).toEqual([])
  })

  it('evidence verifies offline when the gateway is gone', async () => {
    await service.stop()
    await expect(fetch(service.url)).rejects.toThrow('fetch failed')
    const kept = parseExactJson(encodeUtf8(JSON.stringify(old.bundle)))
    expect(await verifyBundle(kept, old.policy)).toMatchObject({ verdict: 'verified' })
  })
})
