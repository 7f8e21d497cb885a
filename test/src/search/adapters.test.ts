import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SEARCH_ADAPTERS } from '#src/search/providers.ts'
import { createWebSearch } from '#src/search/web-search.ts'
import { createEndpoint, type Endpoint } from '#src/upstream/endpoint.ts'
import { SEARCH_PROVIDERS, type SearchProviderName } from '#src/upstream/settings.ts'
import {
  type EndpointScript,
  refuseWith,
  type ScriptedEndpoint,
  startScriptedEndpoint,
} from '../../support/scripted-endpoint.ts'

const KEY = 'search-key-planted'
let server: ScriptedEndpoint
let endpoint: Endpoint
beforeAll(async () => {
  server = await startScriptedEndpoint()
  endpoint = createEndpoint({
    url: server.origin,
    headers: {},
    timeoutMs: 1_000,
    answerBytesMax: 1024 * 1024,
  })
})
afterAll(async () => {
  await endpoint.close()
  await server.stop()
})

async function search(
  name: SearchProviderName,
  script: EndpointScript,
  maxResults = 2,
): Promise<unknown> {
  server.setScript(script)
  const apiKey = name === 'searxng' ? '' : KEY
  const service = createWebSearch({ adapter: SEARCH_ADAPTERS[name], endpoint, apiKey })
  const { signal } = new AbortController()
  const text = await service.search({
    query: 'red & "fox"',
    maxResults,
    signal,
    reserve: () => undefined,
  })
  return JSON.parse(text).results
}

const sent = () => {
  const { method, url, headers, body } = server.requests.at(-1) ?? expect.fail('expected a request')
  const { pathname, searchParams } = new URL(url, server.origin)
  return {
    method,
    pathname,
    query: Object.fromEntries(searchParams),
    headers,
    body: body.toString('utf8'),
  }
}

const found = (link: string, snippet: string, more: object = {}) =>
  ['A', 'B', 'C'].map((title) => ({
    title,
    [link]: `https://${title.toLowerCase()}.example/`,
    [snippet]: `of ${title.toLowerCase()}`,
    ...more,
  }))

/** Answers in the documented formats, with some members that no adapter reads. */
const ANSWERS: Readonly<Record<SearchProviderName, unknown>> = {
  searxng: {
    query: 'red & "fox"',
    results: found('url', 'content', { engine: 'brave', publishedDate: null }),
    unresponsive_engines: [['google', 'timeout']],
  },
  brave: {
    type: 'search',
    web: { type: 'search', results: found('url', 'description', { extra_snippets: ['x'] }) },
  },
  tavily: { answer: null, results: found('url', 'content', { score: 0.9, raw_content: null }) },
  serpapi: {
    search_metadata: { id: '644b', status: 'Success' },
    organic_results: found('link', 'snippet', { position: 7, displayed_link: 'a.example' }),
  },
}

const NOTHING: Readonly<Record<SearchProviderName, unknown>> = {
  searxng: { query: 'x', results: [], unresponsive_engines: [] },
  brave: { type: 'search', query: { original: 'x' } },
  tavily: { query: 'x', results: [], response_time: 0.5 },
  serpapi: {
    search_metadata: { status: 'Success' },
    search_information: { organic_results_state: 'Fully empty' },
    error: "Google hasn't returned any results for this query.",
  },
}

describe.each(SEARCH_PROVIDERS)('%s', (name) => {
  it('an adapter gives as many results as asked for, all in one form', async () => {
    expect(await search(name, () => ANSWERS[name])).toEqual([
      { title: 'A', url: 'https://a.example/', snippet: 'of a', position: 1 },
      { title: 'B', url: 'https://b.example/', snippet: 'of b', position: 2 },
    ])
  })

  it('an adapter gives no results when the answer has no results', async () => {
    expect(await search(name, () => NOTHING[name])).toEqual([])
  })

  it.each([[null], [[]], ['text'], [{ results: 7, web: { results: 7 }, organic_results: 7 }]])(
    'an adapter takes %j for no answer',
    async (answer) => {
      await expect(search(name, () => answer)).rejects.toMatchObject({
        code: 'provider_error',
        status: 502,
      })
    },
  )

  it.each([
    [400, 400, 'provider_refused'],
    [401, 502, 'provider_credential_rejected'],
    [403, 502, 'provider_credential_rejected'],
    [404, 502, 'provider_error'],
    [429, 429, 'provider_refused'],
    [432, 502, 'provider_error'],
    [302, 502, 'provider_error'],
    [503, 502, 'provider_error'],
  ])('a search that gets status %i gives its caller %i', async (status, reported, code) => {
    const refusal = refuseWith(status, { error: 'no' }, { location: `${server.origin}/elsewhere` })
    const before = server.requests.length
    await expect(search(name, refusal)).rejects.toMatchObject({ status: reported, code })
    expect(server.requests.length - before).toBe(1)
  })
})

it('what is sent to SearXNG is a form, without a number of results', async () => {
  await search('searxng', () => ANSWERS.searxng)
  expect(sent()).toMatchObject({
    method: 'POST',
    pathname: '/search',
    query: {},
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'q=red+%26+%22fox%22&format=json',
  })
})

it('what is sent to Brave is a query, with the key in its header', async () => {
  await search('brave', () => ANSWERS.brave)
  expect(sent()).toMatchObject({
    method: 'GET',
    pathname: '/web/search',
    query: { q: 'red & "fox"', count: '2', text_decorations: 'false', result_filter: 'web' },
    headers: { 'x-subscription-token': KEY },
  })
})

it('what is sent to Tavily is JSON, with the key as a bearer token', async () => {
  await search('tavily', () => ANSWERS.tavily)
  const { method, pathname, headers, body } = sent()
  expect([method, pathname, headers.authorization]).toEqual(['POST', '/search', `Bearer ${KEY}`])
  expect(JSON.parse(body)).toEqual({
    query: 'red & "fox"',
    max_results: 2,
    search_depth: 'basic',
  })
})

it('what is sent to SerpApi is a query, with the key in it', async () => {
  await search('serpapi', () => ANSWERS.serpapi)
  expect(sent()).toMatchObject({
    method: 'GET',
    pathname: '/search.json',
    query: { engine: 'google', output: 'json', q: 'red & "fox"', api_key: KEY },
  })
})

it.each<SearchProviderName>(['brave', 'tavily', 'serpapi'])(
  'a refusal of %s that repeats the key or the called URL has no key for the caller',
  async (name) => {
    const apiKey = 'planted/search+key'
    server.setScript(({ url, headers }, response) => {
      const token = headers['x-subscription-token'] ?? headers.authorization ?? apiKey
      refuseWith(422, { error: `wrong key ${token} in ${url}` })({} as never, response)
    })
    const service = createWebSearch({ adapter: SEARCH_ADAPTERS[name], endpoint, apiKey })
    const { signal } = new AbortController()
    const call = { query: 'fox', maxResults: 1, signal, reserve: () => undefined }
    const refused = await service.search(call).catch((error: Error) => error.message)
    expect(refused).toContain('[credential]')
    expect(refused).not.toMatch(/planted|search.{1,3}key/)
  },
)

it.each<[SearchProviderName, number, unknown, string]>([
  [
    'brave',
    422,
    { type: 'ErrorResponse', error: { code: 'VALIDATION', detail: 'too long', status: 422 } },
    'too long',
  ],
  ['tavily', 400, { detail: { error: 'query is too long' } }, 'query is too long'],
  ['serpapi', 400, { error: 'Missing query `q` parameter.' }, 'Missing query `q` parameter.'],
])('a refusal of the provider %s has its words passed on', async (name, status, body, words) => {
  await expect(search(name, refuseWith(status, body))).rejects.toMatchObject({
    status,
    message: `The provider refused the request: ${words}`,
  })
})
