import { afterAll, beforeAll, expect, it } from 'vitest'
import { assembleTiers, type CallKind, type LimitGroup } from '#src/accounts/limits/tiers.ts'
import { loadCl100k } from '#src/embeddings/byte-pairs.ts'
import { createEmbeddings } from '#src/embeddings/embeddings.ts'
import { createTokenCounter } from '#src/embeddings/token-counter.ts'
import { createEndpointSource } from '#src/images/endpoint-source.ts'
import { createImages } from '#src/images/images.ts'
import { SEARCH_ADAPTERS } from '#src/search/providers.ts'
import { createWebSearch } from '#src/search/web-search.ts'
import { createEndpoint, type Endpoint } from '#src/upstream/endpoint.ts'
import { outcomeOf } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { pngOf } from '../../support/image-files.ts'
import {
  refuseWith,
  type ScriptedEndpoint,
  startScriptedEndpoint,
} from '../../support/scripted-endpoint.ts'

const group = (kind: CallKind, limits: Partial<LimitGroup['limits']>): LimitGroup => ({
  name: kind,
  calls: [kind],
  models: ['*'],
  limits: {
    requestsPerMinute: null,
    tokensPerMinute: null,
    requestsPerDay: null,
    tokensPerDay: null,
    ...limits,
  },
  pricePerMillionTokens: null,
})
const TIERS = assembleTiers('small', [
  {
    name: 'small',
    description: '',
    groups: [
      group('embeddings', { tokensPerDay: 10 }),
      group('search', { requestsPerDay: 1 }),
      group('images', { requestsPerDay: 2 }),
      group('chat', {}),
      group('verified', {}),
    ],
  },
])

let server: ScriptedEndpoint
let endpoint: Endpoint
let gateway: TestGateway
beforeAll(async () => {
  server = await startScriptedEndpoint()
  endpoint = createEndpoint({
    url: server.origin,
    headers: {},
    timeoutMs: 5_000,
    answerBytesMax: 1024 * 1024,
  })
  const source = { endpoint, models: [{ id: 'm', inputTokensMax: 100 }], batchInputsMax: 10 }
  const store = { put: async () => '0'.repeat(32), find: async () => null }
  gateway = await startGateway({
    tiers: TIERS,
    embeddings: createEmbeddings({ source, counter: createTokenCounter(loadCl100k) }),
    search: createWebSearch({ adapter: SEARCH_ADAPTERS.searxng, endpoint, apiKey: '' }),
    images: createImages({
      sources: [createEndpointSource({ endpoint, models: ['m'] })],
      store,
      now: Date.now,
    }),
  })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await endpoint.close()
  await server.stop()
}, GATEWAY_HOOK_TIMEOUT_MS)

function post(path: string, body: unknown): Promise<Response> {
  return fetch(`${gateway.url}/v1/${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
  })
}

const REFUSED = [429, 'rate_limit_exceeded']

it('limits count the tokens of embeddings, and nothing for failed calls', async () => {
  const four = { model: 'm', input: [1, 2, 3, 4] }
  server.setScript(refuseWith(500, {}))
  for (let call = 0; call < 3; call++) expect((await post('embeddings', four)).status).toBe(502)
  const vector = { index: 0, embedding: [1] }
  server.setScript(() => ({ data: [vector], usage: { prompt_tokens: 3 } }))
  const first = await post('embeddings', four)
  expect([first.status, first.headers.get('x-ratelimit-limit-tokens')]).toEqual([200, '10'])
  // Three used, as the endpoint counted, and four of the next two reserved.
  expect((await post('embeddings', four)).status).toBe(200)
  expect((await post('embeddings', four)).status).toBe(200)
  const before = server.requests.length
  expect(await outcomeOf(await post('embeddings', four))).toEqual(REFUSED)
  expect(server.requests.length).toBe(before)
})

it('limits count searches as calls', async () => {
  server.setScript(() => ({ results: [] }))
  expect((await post('tool/search', { query: 'a' })).status).toBe(200)
  expect(await outcomeOf(await post('tool/search', { query: 'a' }))).toEqual(REFUSED)
  // A body that is not a valid request is refused as invalid, no matter what is left.
  expect((await post('tool/search', {})).status).toBe(422)
})

it('limits count calls for images', async () => {
  server.setScript(() => ({ data: [{ b64_json: pngOf(8).toString('base64') }] }))
  const request = { model: 'm', prompt: 'x' }
  expect((await post('images/generations', request)).status).toBe(200)
  expect((await post('images/generations', request)).status).toBe(200)
  expect(await outcomeOf(await post('images/generations', request))).toEqual(REFUSED)
})
