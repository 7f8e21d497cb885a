import type { ApiContext, ApiMiddleware } from './context.ts'

/** Stands for every origin, as in the header's own words. */
const ANY_ORIGIN = '*'

/** How long a browser may keep the answer to a preflight: the longest that any of them does. */
const PREFLIGHT_AGE_SECONDS = 7_200

/** Longest list of header names that a preflight is answered with. */
export const REQUESTED_HEADERS_LENGTH_MAX = 1_024

/** Headers of answers that scripts may read, beyond the headers that every script may read. */
export const EXPOSED_HEADERS: readonly string[] = [
  'x-request-id',
  'openai-processing-ms',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'www-authenticate',
  'allow',
  'idempotent-replayed',
  'ehbp-response-nonce',
  ...['requests', 'tokens'].flatMap((kind) =>
    ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-${kind}`),
  ),
]

/**
 * Lets scripts of the `origins` (as browsers send them, `https://app.example`; ANY_ORIGIN for all)
 * call the API and read its answers, errors included. A preflight names the methods that its path
 * has, from `allow`, so it must be answered by what stands behind this. No origin is ever allowed
 * the browser's own credentials: keys travel in a header that a page has to know, so even
 * ANY_ORIGIN gives a page nothing that it could not get by itself.
 *
 * CORS protects browsers' users, not the API: it refuses no call.
 */
export function allowOrigins(origins: readonly string[]): ApiMiddleware {
  if (origins.length === 0) return (_, next) => next()
  const isOpen = origins.includes(ANY_ORIGIN)
  const allowed = new Set(origins)
  return async (context, next) => {
    if (!isOpen) context.vary('origin')
    const { origin } = context.req.headers
    const isAllowed = origin !== undefined && (isOpen || allowed.has(origin))
    if (isAllowed) {
      context.set('access-control-allow-origin', isOpen ? ANY_ORIGIN : origin)
      context.set('access-control-expose-headers', EXPOSED)
    }
    await next()
    if (isAllowed && isPreflight(context)) answerPreflight(context)
  }
}

const EXPOSED = EXPOSED_HEADERS.join(', ')

function isPreflight({ method, status, req }: ApiContext): boolean {
  const isAnswered = method === 'OPTIONS' && status < 300
  return isAnswered && req.headers['access-control-request-method'] !== undefined
}

/**
 * SDKs send headers of their own, more of them each year: all names that are asked for are allowed.
 */
function answerPreflight(context: ApiContext): void {
  context.vary('access-control-request-headers')
  context.set('access-control-allow-methods', context.response.get('allow'))
  context.set('access-control-max-age', String(PREFLIGHT_AGE_SECONDS))
  const requested = context.get('access-control-request-headers')
  const isList = requested.length <= REQUESTED_HEADERS_LENGTH_MAX && HEADER_NAMES.test(requested)
  if (isList) context.set('access-control-allow-headers', requested)
}

const HEADER_NAMES = /^[\w-]+(\s*,\s*[\w-]+)*$/
