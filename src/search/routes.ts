import { z } from 'zod'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import { UPSTREAM_ERRORS } from '../api/errors.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { searchedText } from '../api/schemas.ts'
import type { WebSearch } from './web-search.ts'

/** Limits for all running searches: their number, and the bytes of their bodies and answers. */
const SEARCH_CALLS_MAX = 256
const SEARCH_BYTES_MAX = 64 * 1024 * 1024

const SEARCH_BODY_BYTES_MAX = 64 * 1024

/** Limits of `max_results` (interface facts). */
const SEARCH_RESULTS_MAX = 10
const SEARCH_RESULTS_DEFAULT = 5

/**
 * The interface sets no limit. Some providers accept about 400 characters and report a longer query
 * themselves.
 */
const QUERY_LENGTH_MAX = 2_000

/** Null means unset. Unknown members are accepted and ignored. */
const searchRequest = z.looseObject({
  query: searchedText({ min: 1, max: QUERY_LENGTH_MAX }),
  max_results: boundedInteger({ min: 1, max: SEARCH_RESULTS_MAX })
    .nullish()
    .meta({ default: SEARCH_RESULTS_DEFAULT }),
})

const searchResults = z.strictObject({
  results: z.array(
    z.strictObject({
      title: z.string(),
      url: z.string(),
      snippet: z.string(),
      position: z.int().min(1),
    }),
  ),
})

/** `POST /v1/tool/search` (interface, part 4, and facts). */
export function searchRoutes({
  search,
  limiter,
}: {
  readonly search: WebSearch
  readonly limiter: Pick<RateLimiter, 'admit'>
}): readonly Route[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/tool/search',
      tag: 'Search',
      summary: 'Search the web',
      scope: 'inference',
      body: {
        name: 'SearchRequest',
        schema: searchRequest,
        bytesMax: SEARCH_BODY_BYTES_MAX,
        example: { query: 'certificate transparency', max_results: 3 },
      },
      reply: { name: 'SearchResults', schema: searchResults },
      errors: [
        'rate_limit_exceeded',
        'insufficient_quota',
        'search_not_configured',
        ...UPSTREAM_ERRORS,
      ],
      admission: createAdmission({ callsMax: SEARCH_CALLS_MAX, bytesMax: SEARCH_BYTES_MAX }),
      isAbortable: true,
      async handler({ context, body: { query, max_results: asked }, abort, slot }) {
        const permit = await admitCall(context, limiter, { kind: 'search', model: '', estimate: 0 })
        permit.settle(0)
        const maxResults = typeof asked === 'number' ? asked : SEARCH_RESULTS_DEFAULT
        return search.search({
          // Providers expect one line, and a model's query may have several.
          query: query.trim().replaceAll(/\s+/g, ' '),
          maxResults,
          signal: abort.signal,
          reserve: slot.reserve,
        })
      },
    }),
  ]
}
