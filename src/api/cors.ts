import type { ApiContext, ApiMiddleware } from './context.ts'

const ANY_ORIGIN = '*'

/** The longest time that browsers keep the answer to a preflight. */
const PREFLIGHT_AGE_SECONDS = 7_200

/** A longer list of requested headers is not repeated in the answer. */
export const REQUESTED_HEADERS_LENGTH_MAX = 1_024

/** Answer headers that scripts may read, besides those that are always readable. */
export const EXPOSED_HEADERS: readonly string[] = [
  'x-request-id',
  'request-id',
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
  ...['requests', 'input-tokens', 'output-tokens'].flatMap((kind) =>
    ['limit', 'remaining', 'reset'].map((what) => `anthropic-ratelimit-${kind}-${what}`),
  ),
]

/**
 * Allows scripts of the `origins` to call the API and read its answers, including errors. Origins
 * have the form that browsers send, `https://app.example`; `*` allows all. The answer to a
 * preflight lists the methods from the header `allow`, which the handlers behind this middleware
 * set. Browsers' own credentials, such as cookies, are never allowed: a page must have an API key.
 * No call is refused, because CORS protects the users of browsers, not the API.
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

/** SDKs send their own headers, and new ones each year, so all requested names are allowed. */
function answerPreflight(context: ApiContext): void {
  context.vary('access-control-request-headers')
  context.set('access-control-allow-methods', context.response.get('allow'))
  context.set('access-control-max-age', String(PREFLIGHT_AGE_SECONDS))
  const requested = context.get('access-control-request-headers')
  const isList = requested.length <= REQUESTED_HEADERS_LENGTH_MAX && HEADER_NAMES.test(requested)
  if (isList) context.set('access-control-allow-headers', requested)
}

const HEADER_NAMES = /^[\w-]+(\s*,\s*[\w-]+)*$/
