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

/** Answers in the documented formats, with members that no adapter reads left in. */
const ANSWERS: Readonly<Record<SearchProviderName, unknown>> = {
  searxng: {
    query: 'red & "fox"',
    number_of_results: 0,
    results: [
      {
        url: 'https://a.example/',
        title: 'A',
        content: 'of a',
        engine: 'brave',
        score: 4,
        category: 'general',
      },
      {
        url: 'https://b.example/',
        title: 'B',
        content: 'of b',
        engine: 'mojeek',
        publishedDate: null,
      },
      { url: 'https://c.example/', title: 'C', content: 'of c' },
    ],
    answers: [],
    suggestions: [],
    unresponsive_engines: [['google', 'timeout']],
  },
  brave: {
    type: 'search',
    query: { original: 'red & "fox"', more_results_available: true },
    web: {
      type: 'search',
      results: [
        {
          title: 'A',
          url: 'https://a.example/',
          description: 'of a',
          is_source_local: false,
          profile: { name: 'a' },
        },
        { title: 'B', url: 'https://b.example/', description: 'of b', extra_snippets: ['x'] },
        { title: 'C', url: 'https://c.example/', description: 'of c' },
      ],
    },
  },
  tavily: {
    query: 'red & "fox"',
    answer: null,
    images: [],
    results: [
      { title: 'A', url: 'https://a.example/', content: 'of a', score: 0.9, raw_content: null },
      { title: 'B', url: 'https://b.example/', content: 'of b', score: 0.8, raw_content: null },
      { title: 'C', url: 'https://c.example/', content: 'of c', score: 0.7, raw_content: null },
    ],
    response_time: 1.09,
    request_id: '123e4567-e89b-12d3-a456-426614174111',
  },
  serpapi: {
    search_metadata: { id: '644b', status: 'Success' },
    search_information: { organic_results_state: 'Results for exact spelling' },
    organic_results: [
      {
        position: 1,
        title: 'A',
        link: 'https://a.example/',
        displayed_link: 'a.example',
        snippet: 'of a',
      },
      {
        position: 3,
        title: 'B',
        link: 'https://b.example/',
        displayed_link: 'b.example',
        snippet: 'of b',
      },
      {
        position: 4,
        title: 'C',
        link: 'https://c.example/',
        displayed_link: 'c.example',
        snippet: 'of c',
      },
    ],
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
