import { randomBytes } from 'node:crypto'
import { computeAddress, Wallet } from 'ethers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { callChain } from '../support/deployment/deployment.ts'
import { createEncryptedFetch } from '../support/encrypted-fetch.ts'
import { NATS, type NatsServer, startNatsServer } from '../support/nats-server.ts'
import { createTestDatabase } from '../support/test-database.ts'
import { until } from '../support/until.ts'

const COMPLETIONS = '/v1/verified/chat/completions'

let nats: NatsServer
let first: Affidavit
let second: Affidavit

type Notary = { readonly notary: string; readonly encryption_keys: readonly unknown[] }

async function notariesAt({ url }: Affidavit): Promise<readonly string[]> {
  const reply = await fetch(`${url}/v1/notaries`)
  const { notaries } = (await reply.json()) as { readonly notaries: readonly Notary[] }
  return notaries.map(({ notary }) => notary).sort()
}

describe.runIf(NATS.isMet)(NATS.title('two gateways, each with an enclave of its own'), () => {
  beforeAll(async () => {
    nats = await startNatsServer()
    const shared = { DATABASE_URL: await createTestDatabase({ empty: true }), NATS_URL: nats.url }
    first = await startAffidavit({ variables: shared })
    const relayer = new Wallet(`0x${randomBytes(32).toString('hex')}`)
    await callChain(first.rpcUrl, 'anvil_setBalance', [relayer.address, '0x56bc75e2d63100000'])
    second = await startAffidavit({
      variables: {
        ...shared,
        CHAIN_RPC_URL: first.rpcUrl,
        CHAIN_ID: String(first.chainId),
        CONTRACT_ADDRESS: first.contract,
        RELAYER_PRIVATE_KEY: relayer.privateKey,
        DEV_API_KEY: first.apiKey,
      },
    })
    await until('both know both enclaves', async () => {
      const known = await Promise.all([notariesAt(first), notariesAt(second)])
      return known.every(({ length }) => length === 2)
    })
  })
  afterAll(async () => {
    await second?.stop()
    await first?.stop()
    await nats?.stop()
  })

  it('two gateways, each with an enclave, give the same notaries and encryption keys', async () => {
    expect(await notariesAt(first)).toEqual(await notariesAt(second))
    const keys = await Promise.all(
      [first, second].map(async ({ url }) =>
        Buffer.from(await (await fetch(`${url}/.well-known/hpke-keys`)).arrayBuffer()).toString(
          'hex',
        ),
      ),
    )
    expect(keys[0]).toBe(keys[1])
  })

  it('two gateways have the other’s enclave attested, over a nonce', async () => {
    for (const at of [first, second])
      for (const notary of await notariesAt(first)) {
        const nonce = randomBytes(32).toString('hex')
        const reply = await fetch(`${at.url}/v1/attestation?nonce=${nonce}&notary=${notary}`)
        const { attestation, notary: attested } = (await reply.json()) as Record<string, string>
        expect(attested).toBe(notary)
        expect(Buffer.from(attestation ?? '', 'base64').toString('hex')).toContain(nonce)
      }
    const nobody = await fetch(`${first.url}/v1/attestation?notary=0x${'0'.repeat(40)}`)
    expect(nobody.status).toBe(404)
  })

  it.each([false, true])(
    'two gateways make clear calls that name the other’s enclave, streamed: %s',
    async (stream) => {
      for (const at of [first, second])
        for (const notary of await notariesAt(at)) {
          const reply = await fetch(at.url + COMPLETIONS, {
            method: 'POST',
            headers: {
              authorization: `Bearer ${first.apiKey}`,
              'content-type': 'application/json',
              'affidavit-notary': notary,
            },
            body: JSON.stringify({
              model: 'demo/echo',
              stream,
              messages: [{ role: 'user', content: `word `.repeat(200) }],
              affidavit: { notary },
            }),
          })
          const text = await reply.text()
          expect(reply.status, text).toBe(200)
          const [, key = ''] = /"public_key": ?"(0x[0-9a-f]+)"/.exec(text) ?? []
          expect(computeAddress(key).toLowerCase()).toBe(notary)
        }
    },
  )

  it('two gateways pass on a refusal of the other’s enclave, and refuse a call for an enclave of nobody', async () => {
    const [one = '', two = ''] = await notariesAt(first)
    const send = async (named: string, demanded: string) => {
      const reply = await fetch(first.url + COMPLETIONS, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${first.apiKey}`,
          'content-type': 'application/json',
          'affidavit-notary': named,
        },
        body: JSON.stringify({
          model: 'demo/echo',
          messages: [{ role: 'user', content: 'Hello' }],
          affidavit: { notary: demanded },
        }),
      })
      const { error } = (await reply.json()) as { readonly error: { readonly code: string } }
      return [reply.status, error.code]
    }
    const nobody = `0x${'ab'.repeat(20)}`
    for (const call of [
      [one, two],
      [two, one],
      [nobody, nobody],
    ] as const)
      expect(await send(...call)).toEqual([422, 'notary_mismatch'])
  })

  it.each([false, true])(
    'two gateways make encrypted calls at the other’s enclave, streamed: %s',
    async (stream) => {
      for (const at of [first, second]) {
        const send = createEncryptedFetch(() => at.url, 'notaries')
        const keys = new Set<string>()
        for (let call = 0; call < 2; call++) {
          const reply = await send(at.url + COMPLETIONS, {
            method: 'POST',
            headers: {
              authorization: `Bearer ${first.apiKey}`,
              'content-type': 'application/json',
            },
            body: JSON.stringify({
              model: 'demo/echo',
              stream,
              messages: [{ role: 'user', content: `word `.repeat(200) }],
            }),
          })
          const text = await reply.text()
          expect(reply.status, text).toBe(200)
          keys.add(/"public_key": ?"(0x[0-9a-f]+)"/.exec(text)?.[1] ?? 'none')
          const hash = /"hash": ?"([0-9a-f]{64})"/.exec(text)?.[1]
          const record = await fetch(`${at.url}${COMPLETIONS}/${hash}`, {
            headers: { authorization: `Bearer ${first.apiKey}` },
          })
          expect(record.status).toBe(200)
        }
        expect(keys.size).toBe(2)
        expect(keys).not.toContain('none')
      }
    },
  )
})
