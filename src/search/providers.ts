import { type EndpointCall, EndpointError } from '../upstream/endpoint.ts'
import type { SearchProviderName } from '../upstream/settings.ts'

export type SearchQuery = { readonly query: string; readonly maxResults: number }

/** A result as the provider sent it, unchecked. */
export type FoundItem = {
  readonly title: unknown
  readonly url: unknown
  readonly snippet: unknown
}

export type SearchAdapter = {
  /** `apiKey` is empty for a provider that needs no key. */
  request(
    query: SearchQuery,
    apiKey: string,
  ): Pick<EndpointCall, 'method' | 'path' | 'headers' | 'body'>
  /** Reads an answer with status 200. Throws EndpointError `bad_answer`. */
  readItems(answer: object): readonly FoundItem[]
}

/**
 * SearXNG answers 403 unless its `settings.yml` allows JSON (`search.formats`). The query is sent
 * in a form, because access logs contain URLs and must not contain people's searches. SearXNG has
 * no parameter for the number of results.
 */
const SEARXNG: SearchAdapter = {
  request: ({ query }) => ({
    method: 'POST',
    path: '/search',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ q: query, format: 'json' }).toString(),
  }),
  readItems: (answer) => itemsOf(answer, 'results', { url: 'url', snippet: 'content' }),
}

/**
 * Without `text_decorations`, Brave's texts contain no HTML. An answer without results has no
 * `web`.
 */
const BRAVE: SearchAdapter = {
  request: ({ query, maxResults }, apiKey) => {
    const parameters = {
      q: query,
      count: String(maxResults),
      text_decorations: 'false',
      result_filter: 'web',
    }
    return {
      method: 'GET',
      path: `/web/search?${new URLSearchParams(parameters)}`,
      headers: { 'x-subscription-token': apiKey },
    }
  },
  readItems: (answer) =>
    itemsOf(memberOf(answer, 'web') ?? {}, 'results', { url: 'url', snippet: 'description' }),
}

/** Each search at Tavily's basic depth costs one credit. */
const TAVILY: SearchAdapter = {
  request: ({ query, maxResults }, apiKey) => ({
    method: 'POST',
    path: '/search',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ query, max_results: maxResults, search_depth: 'basic' }),
  }),
  readItems: (answer) => itemsOf(answer, 'results', { url: 'url', snippet: 'content' }),
}

/**
 * SerpApi accepts its key only in the URL. With search status Success, `error` only means that
 * there are no results. With any other search status, `error` is a failure. The HTTP status makes
 * no difference.
 */
const SERPAPI: SearchAdapter = {
  request: ({ query }, apiKey) => {
    const parameters = { engine: 'google', output: 'json', q: query, api_key: apiKey }
    return { method: 'GET', path: `/search.json?${new URLSearchParams(parameters)}` }
  },
  readItems: (answer) => {
    if (memberOf(memberOf(answer, 'search_metadata'), 'status') !== 'Success')
      throw new EndpointError('bad_answer', 'expected a search with status Success')
    return itemsOf(answer, 'organic_results', { url: 'link', snippet: 'snippet' })
  },
}

export const SEARCH_ADAPTERS: Readonly<Record<SearchProviderName, SearchAdapter>> = {
  searxng: SEARXNG,
  brave: BRAVE,
  tavily: TAVILY,
  serpapi: SERPAPI,
}

/** A missing list counts as empty. Throws EndpointError if the value is not a list. */
function itemsOf(
  answer: unknown,
  list: string,
  names: { readonly url: string; readonly snippet: string },
): readonly FoundItem[] {
  const items = memberOf(answer, list) ?? []
  if (!Array.isArray(items)) throw new EndpointError('bad_answer', `expected a list of ${list}`)
  return items.map((item) => ({
    title: memberOf(item, 'title'),
    url: memberOf(item, names.url),
    snippet: memberOf(item, names.snippet),
  }))
}

function memberOf(value: unknown, name: string): unknown {
  const hasMember = typeof value === 'object' && value !== null && Object.hasOwn(value, name)
  return hasMember ? Reflect.get(value, name) : undefined
}
