import { expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { serveProxy } from '#src/cli/proxy/serve-proxy.ts'

it.each([
  ['Authorization alone', { authorization: 'Bearer afd_k' }, 'afd_k'],
  ['x-api-key alone', { 'x-api-key': 'afd_k' }, 'afd_k'],
  ['an empty x-api-key', { authorization: 'Bearer afd_k', 'x-api-key': '' }, 'afd_k'],
  ['another x-api-key', { authorization: 'Bearer afd_k', 'x-api-key': 'other' }, 'afd_k'],
  ['an empty Authorization', { authorization: '', 'x-api-key': 'afd_k' }, 'afd_k'],
  ['only empty headers', { authorization: '', 'x-api-key': '' }, null],
] as const)(
  'the evidence of a call with %s is asked for with the key of the call',
  async (_, headers, key) => {
    const keys: (string | null)[] = []
    const affidavit = {
      baseURL: 'http://127.0.0.1:9/v1/verified',
      fetch: async () => Response.json({}),
      proofs: { of: () => ({ request: {}, answer: {} }) },
    } as unknown as Affidavit
    const proxy = await serveProxy({
      affidavit,
      port: 0,
      onCall: () => undefined,
      onProof: (__, apiKey) => keys.push(apiKey),
    })
    const url = `${proxy.baseURL}/chat/completions`
    const answer = await fetch(url, { method: 'POST', body: '{"model":"m"}', headers })
    await answer.text()
    expect(keys).toEqual([key])
    await proxy.close()
  },
)
