import { afterAll, beforeAll, expect, it } from 'vitest'
import { SEARCH_ADAPTERS } from '#src/search/providers.ts'
import { createWebSearch } from '#src/search/web-search.ts'
import { createEndpoint } from '#src/upstream/endpoint.ts'
import { outcomeOf } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../support/scripted-endpoint.ts'

const KEY = 'tvly-planted'
const FOUND = Array.from({ length: 20 }, (_, index) => ({
  title: `T${index}`,
  url: `https://a.example/${index}`,
  content: 'S',
}))

let provider: ScriptedEndpoint
let gateway: TestGateway
let bare: TestGateway
beforeAll(async () => {
  provider = await startScriptedEndpoint(() => ({ results: FOUND }))
  const endpoint = createEndpoint({
    url: provider.origin,
    headers: {},
    timeoutMs: 60_000,
    answerBytesMax: 1024 * 1024,
  })
  const search = createWebSearch({ adapter: SEARCH_ADAPTERS.tavily, endpoint, apiKey: KEY })
  gateway = await startGateway({ search })
  bare = await startGateway()
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await bare.stop()
  await provider.stop()
}, GATEWAY_HOOK_TIMEOUT_MS)

function post(body: unknown, init: RequestInit = {}, to = gateway): Promise<Response> {
  return fetch(`${to.url}/v1/tool/search`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { authorization: `Bearer ${to.key}`, 'content-type': 'application/json' },
    ...init,
  })
}

const resultsOf = async (reply: Response) =>
  ((await reply.json()) as { results: unknown[] }).results

it('POST /v1/tool/search gives five results by default', async () => {
  const results = await resultsOf(await post({ query: 'fox', max_results: null }))
  expect(results).toHaveLength(5)
  expect(results[0]).toEqual({
    title: 'T0',
    url: 'https://a.example/0',
    snippet: 'S',
    position: 1,
  })
})

it('POST /v1/tool/search sends a query of several lines as one line', async () => {
  expect((await post({ query: ' who won\r\n\tthe cup\n' })).status).toBe(200)
  expect(provider.requests.at(-1)?.json).toMatchObject({ query: 'who won the cup' })
})

it('POST /v1/tool/search takes no address and no credential from the caller', async () => {
  const elsewhere = {
    url: 'http://127.0.0.1:9/',
    base_url: 'http://127.0.0.1:9/',
    api_key: 'mine',
  }
  expect((await post({ query: 'fox', ...elsewhere })).status).toBe(200)
  expect(provider.requests.at(-1)?.json).toEqual({
    query: 'fox',
    max_results: 5,
    search_depth: 'basic',
  })
  expect(provider.requests.at(-1)?.headers.authorization).toBe(`Bearer ${KEY}`)
})

it('POST /v1/tool/search needs a key, and a provider', async () => {
  expect(
    await outcomeOf(
      await post({ query: 'fox' }, { headers: { 'content-type': 'application/json' } }),
    ),
  ).toEqual([401, 'authorization_missing'])
  const reply = await post({ query: 'fox' }, {}, bare)
  expect(reply.headers.get('x-should-retry')).toBe('false')
  expect(await outcomeOf(reply)).toEqual([503, 'search_not_configured'])
})

it('POST /v1/tool/search ends the provider’s call when the caller leaves, and logs no query', async () => {
  const reached = new Promise<void>((resolve) => provider.setScript(() => void resolve()))
  const abort = new AbortController()
  const calling = post({ query: 'planted-query' }, { signal: abort.signal })
  await reached
  abort.abort()
  await expect(calling).rejects.toThrow()
  await expect.poll(() => provider.left()).toBe(1)
  for (const planted of ['planted-query', KEY])
    expect(gateway.logLines.join()).not.toContain(planted)
})
