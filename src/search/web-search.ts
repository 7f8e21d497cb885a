import { ApiError } from '../api/errors.ts'
import type { Opening } from '../observability/logger.ts'
import { serviceCallErrorOf } from '../upstream/call-error.ts'
import { type Endpoint, EndpointError, openEndpoint } from '../upstream/endpoint.ts'
import type { SearchConfig } from '../upstream/settings.ts'
import { SEARCH_ADAPTERS, type SearchAdapter, type SearchQuery } from './providers.ts'
import { normaliseResults } from './results.ts'

type SearchCall = SearchQuery & {
  /** When aborted, the call throws the signal's reason. */
  readonly signal: AbortSignal
  /**
   * Counts bytes that this call holds. Throws ApiError `overloaded` when all calls together hold
   * too much.
   */
  readonly reserve: (bytes: number) => void
}

export type WebSearch = {
  /**
   * Returns the results as JSON text (interface facts). Throws the signal's reason or ApiError:
   * without a provider, the code is `search_not_configured`.
   */
  search(call: SearchCall): Promise<string>
}

type SearchSource = {
  readonly adapter: SearchAdapter
  readonly endpoint: Pick<Endpoint, 'ask'>
  /** Read again for each search. Empty for a provider that needs no key. */
  readonly apiKey: string
}

/** A usual answer has 100 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024

export function openWebSearch(config: SearchConfig | null, { onStarted }: Opening): WebSearch {
  if (config === null) return createWebSearch(null)
  const { provider, url, timeoutMs } = config
  const options = { url, headers: {}, timeoutMs, answerBytesMax: ANSWER_BYTES_MAX }
  return createWebSearch({
    adapter: SEARCH_ADAPTERS[provider],
    endpoint: openEndpoint(options, onStarted),
    get apiKey() {
      return config.apiKey ?? ''
    },
  })
}

export function createWebSearch(source: SearchSource | null): WebSearch {
  return {
    async search({ query, maxResults, signal, reserve }) {
      if (source === null)
        throw new ApiError('search_not_configured', 'This service has no search provider')
      const { adapter, endpoint, apiKey } = source
      try {
        const request = adapter.request({ query, maxResults }, apiKey)
        const answer = await endpoint.ask({
          ...request,
          secrets: secretsOf(apiKey),
          signal,
          reserve,
        })
        if (typeof answer !== 'object' || answer === null || Array.isArray(answer))
          throw new EndpointError('bad_answer', 'expected an object')
        return JSON.stringify({ results: normaliseResults(adapter.readItems(answer), maxResults) })
      } catch (error) {
        throw error instanceof EndpointError ? serviceCallErrorOf(error) : error
      }
    },
  }
}

/** The key as it is, and as a query contains it, because a refusal may quote the called URL. */
function secretsOf(apiKey: string): readonly string[] {
  return apiKey === '' ? [] : [apiKey, new URLSearchParams({ key: apiKey }).toString().slice(4)]
}
