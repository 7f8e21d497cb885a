import { z } from 'zod'
import { boundedInteger } from '../api/bounded-integer.ts'
import { boundedText } from '../api/bounded-text.ts'
import { validateBody } from '../api/json-body.ts'
import type { SearchQuery } from './adapter.ts'

/** Interface facts: `max_results`. */
export const SEARCH_RESULTS_MAX = 10
export const SEARCH_RESULTS_DEFAULT = 5

/** Not bounded by the interface. Providers take less, some 400 characters, and say so themselves. */
export const QUERY_LENGTH_MAX = 2_000

/** Gives a search request from its body's bytes. Throws ValidationError. Null is unset; unknown members pass, and go nowhere. */
export function parseSearchRequest(body: Uint8Array): SearchQuery {
  const { query, max_results: maxResults } = validateBody(searchRequest, body)
  return { query, maxResults: typeof maxResults === 'number' ? maxResults : SEARCH_RESULTS_DEFAULT }
}

/** Body of `POST /v1/tool/search`. */
export const searchRequest = z.looseObject({
  query: boundedText({ min: 1, max: QUERY_LENGTH_MAX }),
  max_results: boundedInteger({ min: 1, max: SEARCH_RESULTS_MAX })
    .nullish()
    .meta({ default: SEARCH_RESULTS_DEFAULT }),
})
