import type { EndpointRefusal } from './endpoint-error.ts'

/** Characters of a service's own words that are kept. */
export const REFUSAL_MESSAGE_LENGTH_MAX = 500
const REFUSAL_CODE_LENGTH_MAX = 64
/** A service that asks for more patience than a day is not believed. */
const RETRY_AFTER_SECONDS_MAX = 86_400

/** What a service says in an answer that is none, whatever form it has: OpenAI's envelope, `detail`, or nothing known. */
export function readRefusal(
  status: number,
  reply: { readonly body: unknown; readonly retryAfter: unknown },
): EndpointRefusal {
  const { body } = reply
  const error = isObject(body) ? (body.error ?? body.detail ?? body.message) : null
  const said = isObject(error) ? (error.message ?? error.detail ?? error.error) : error
  const code = isObject(error) ? error.code : null
  return {
    status,
    message: typeof said === 'string' ? printable(said).slice(0, REFUSAL_MESSAGE_LENGTH_MAX) : '',
    code: typeof code === 'string' && CODE.test(code) ? code : null,
    retryAfterSeconds: readRetryAfter(reply.retryAfter),
  }
}

const CODE = new RegExp(`^[\\w.-]{1,${REFUSAL_CODE_LENGTH_MAX}}$`)

/** Seconds alone (RFC 9110 section 10.2.3): a date would need the service's clock to be right. */
export function readRetryAfter(header: unknown): number | null {
  if (typeof header !== 'string' || !/^\d{1,9}$/.test(header)) return null
  return Math.min(Number(header), RETRY_AFTER_SECONDS_MAX)
}

/** Text of a stranger that may end in a log or a message: no control characters, no lone surrogates. */
function printable(text: string): string {
  return text
    .slice(0, 2 * REFUSAL_MESSAGE_LENGTH_MAX)
    .toWellFormed()
    .replaceAll(/\p{C}/gu, ' ')
    .trim()
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
