import { parseExactJson } from '../attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../attestation/json/value.ts'
import { readAtMost } from './gateway.ts'

/** Maximum number of bytes that are read from an error. */
const ERROR_BYTES_MAX = 1024 * 1024

/**
 * Reduces an error answer to the members `error` and `detail` of its body. The rest could contain
 * an unchecked completion, and some readers ignore the status. `error` and `detail` are unproved
 * statements from the gateway. Headers that describe the body are removed.
 */
export async function passError(response: Response): Promise<Response> {
  const { status, statusText } = response
  const bytes = await readAtMost(response, ERROR_BYTES_MAX).catch(() => null)
  const headers = new Headers(response.headers)
  headers.delete('content-encoding')
  headers.delete('content-length')
  headers.set('content-type', 'application/json')
  const body = JSON.stringify(membersOf(bytes) ?? unknownError(status))
  return new Response(body, { status, statusText, headers })
}

/** Returns null if the body has neither member: a proxy before the gateway made it. */
function membersOf(bytes: Uint8Array | null): JsonObject | null {
  const json = bytes === null ? null : readJson(bytes)
  if (!isJsonObject(json)) return null
  const [error, detail] = [memberOf(json, 'error'), memberOf(json, 'detail')]
  if (error === undefined && detail === undefined) return null
  return { ...(error === undefined ? {} : { error }), ...(detail === undefined ? {} : { detail }) }
}

function readJson(bytes: Uint8Array): Json | null {
  try {
    return parseExactJson(bytes)
  } catch {
    return null
  }
}

function unknownError(status: number): JsonObject {
  const message = `the gateway answered with status ${status} and without an error message`
  return { error: { message, type: 'gateway_error', param: null, code: 'gateway_error' } }
}
