import { parseExactJson } from '#attestation/json/parse-strict.ts'
import {
  filterMembers,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'
import type { CallDialect, CallerFault } from './call-dialects.ts'
import { readAtMost } from './gateway.ts'

const ERROR_BYTES_MAX = 1024 * 1024

/**
 * Reduces the body of an error answer to the members `error` and `detail`, and to `type` and
 * `request_id` of an error in Anthropic's form. The rest could contain an unchecked completion, and
 * some readers ignore the status. Nothing proves `error` and `detail`. Also converts the errors of
 * encrypted calls, which have OpenAI's form, to the form and the status of the call's dialect.
 */
export async function passError(
  response: Response,
  form: Pick<CallDialect, 'statusOf' | 'isErrorBody' | 'errorBody'>,
): Promise<Response> {
  const bytes = await readAtMost(response, ERROR_BYTES_MAX).catch(() => null)
  const headers = new Headers(response.headers)
  headers.delete('content-encoding')
  headers.delete('content-length')
  headers.set('content-type', 'application/json')
  const given = membersOf(bytes)
  const fault = faultIn(given, response.status)
  const status = form.statusOf(fault)
  const isFormed = given !== null && form.isErrorBody(given)
  const body = JSON.stringify(isFormed ? given : form.errorBody({ ...fault, status }))
  return new Response(body, { status, headers })
}

/** Returns the error that the body states. The body is not trusted. */
function faultIn(body: JsonObject | null, status: number): CallerFault {
  const textIn = (name: string) => {
    const text = body === null ? null : memberAt(body, 'error', name)
    return typeof text === 'string' ? text : null
  }
  const message = `the gateway answered with status ${status} and without an error message`
  return {
    status,
    type: 'gateway_error',
    code: textIn('code') ?? 'gateway_error',
    message: textIn('message') ?? message,
    param: textIn('param'),
  }
}

/** Returns null if the body is not an error of the gateway, but of a proxy before the gateway. */
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
