import { parseExactJson } from '../attestation/json/parse-strict.ts'
import {
  filterMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../attestation/json/value.ts'
import type { CallDialect } from './call-dialects.ts'
import { readAtMost } from './gateway.ts'

/** Maximum number of bytes that are read from an error. */
const ERROR_BYTES_MAX = 1024 * 1024

/**
 * Reduces an error answer to the members `error` and `detail` of its body, and to the marks of an
 * error in Anthropic's form. The rest could contain an unchecked completion, and some readers
 * ignore the status. `error` and `detail` are unproved statements from the gateway. Headers that
 * describe the body are removed.
 */
export async function passError(
  response: Response,
  { errorBody }: Pick<CallDialect, 'errorBody'>,
): Promise<Response> {
  const { status, statusText } = response
  const bytes = await readAtMost(response, ERROR_BYTES_MAX).catch(() => null)
  const headers = new Headers(response.headers)
  headers.delete('content-encoding')
  headers.delete('content-length')
  headers.set('content-type', 'application/json')
  const message = `the gateway answered with status ${status} and without an error message`
  const unknown = { status, type: 'gateway_error', code: 'gateway_error', message }
  const body = JSON.stringify(membersOf(bytes) ?? errorBody(unknown))
  return new Response(body, { status, statusText, headers })
}

/** Returns null if the body is not an error: a proxy before the gateway made it. */
function membersOf(bytes: Uint8Array | null): JsonObject | null {
  const json = bytes === null ? null : readJson(bytes)
  if (!isJsonObject(json)) return null
  const isError = ['error', 'detail'].some((name) => memberOf(json, name) !== undefined)
  return isError ? filterMembers(json, isPassed) : null
}

function isPassed(name: string, value: Json): boolean {
  switch (name) {
    case 'error':
    case 'detail':
      return true
    case 'type':
      return value === 'error'
    case 'request_id':
      return typeof value === 'string' && /^[\w.-]{1,100}$/.test(value)
    default:
      return false
  }
}

function readJson(bytes: Uint8Array): Json | null {
  try {
    return parseExactJson(bytes)
  } catch {
    return null
  }
}
