import { concatBytes } from '../../../attestation/bytes.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import type { Json } from '../../../attestation/json/value.ts'

/** Why the gateway did not give what the page asked for. */
export class GatewayFault extends Error {
  /** HTTP status; 0 when there was no answer. */
  readonly status: number
  /** The error's own code (`insufficient_scope`), or ours. */
  readonly code: string
  /** The operator finds the call in the log by this id; null without an answer. */
  readonly requestId: string | null
  /** The answer's JSON; undefined without an answer. */
  readonly answer: unknown

  constructor(
    message: string,
    {
      status,
      code,
      requestId,
      answer,
    }: {
      readonly status: number
      readonly code: string
      readonly requestId: string | null
      readonly answer?: unknown
    },
  ) {
    super(message)
    this.name = 'GatewayFault'
    this.status = status
    this.code = code
    this.requestId = requestId
    this.answer = answer
  }
}

export type GatewayCall = {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** API key; left out for public data. */
  readonly key?: string | null
  /** Sent as JSON. */
  readonly body?: object
  readonly signal?: AbortSignal
}

/**
 * Asks this page's own gateway, and gives its JSON. Throws GatewayFault for any other answer and
 * without an answer; AbortError when `signal` is aborted.
 *
 * Does NOT check that the answer has the shape that the caller expects: a page shows what its own
 * gateway says, and checks evidence by itself.
 */
export async function askGateway<Answer>(path: string, call: GatewayCall = {}): Promise<Answer> {
  const { response, bytes } = await sendCall(path, call)
  const value = readJson(new TextDecoder().decode(bytes))
  if (!response.ok || value === undefined) throw faultOf(response, value)
  return value as Answer
}

/** Asks this page's own gateway for a text to save, exactly as it came. Throws as askGateway. */
export async function askText(path: string, call: GatewayCall = {}): Promise<string> {
  const { response, bytes } = await sendCall(path, call)
  const text = new TextDecoder().decode(bytes)
  if (!response.ok) throw faultOf(response, readJson(text))
  return text
}

/**
 * Asks this page's own gateway for evidence. The JSON is read exactly: the members and digits that
 * are read are the ones that are checked. Throws as askGateway.
 */
export async function askEvidence(path: string, call: GatewayCall = {}): Promise<Json> {
  const { response, bytes } = await sendCall(path, call)
  if (!response.ok) throw faultOf(response, readJson(new TextDecoder().decode(bytes)))
  try {
    return parseExactJson(bytes)
  } catch (fault) {
    const reason = fault instanceof Error ? fault.message : 'unreadable'
    throw new GatewayFault(`The gateway's answer is not valid JSON: ${reason}.`, {
      ...{ status: response.status, code: 'bad_answer' },
      requestId: response.headers.get('x-request-id'),
    })
  }
}

/** Longest answer, bytes: a request has up to 10 MiB, an answer little more. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024

async function sendCall(
  path: string,
  call: GatewayCall,
): Promise<{ readonly response: Response; readonly bytes: Uint8Array }> {
  const { method = 'GET', key = null, body, signal = null } = call
  try {
    const response = await fetch(path, {
      method,
      signal,
      headers: {
        accept: 'application/json',
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      credentials: 'omit',
      redirect: 'error',
    })
    return { response, bytes: await readBody(response) }
  } catch (fault) {
    if (signal?.aborted || fault instanceof GatewayFault) throw fault
    throw new GatewayFault('The gateway does not answer.', {
      ...{ status: 0, code: 'unreachable', requestId: null },
    })
  }
}

/** Stops at the limit of what a page can hold: the gateway may send anything. */
async function readBody(response: Response): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let length = 0
  const reader = response.body?.getReader()
  for (let read = await reader?.read(); read?.value; read = await reader?.read()) {
    parts.push(read.value)
    length += read.value.length
    if (length <= ANSWER_BYTES_MAX) continue
    await reader?.cancel()
    throw new GatewayFault(`The gateway's answer has more than ${ANSWER_BYTES_MAX} bytes.`, {
      ...{ status: response.status, code: 'too_large', requestId: null },
    })
  }
  return concatBytes(...parts)
}

/** Gives the fault from an answer with an error status. */
export async function readFault(response: Response): Promise<GatewayFault> {
  return faultOf(response, readJson(await response.text()))
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function faultOf(response: Response, value: unknown): GatewayFault {
  const { status, headers } = response
  const requestId = headers.get('x-request-id')
  const error = memberOf(value, 'error')
  const message = memberOf(error, 'message')
  const code = memberOf(error, 'code') ?? memberOf(error, 'type')
  if (typeof message === 'string')
    return new GatewayFault(message, {
      ...{ status, requestId, answer: value },
      code: typeof code === 'string' ? code : String(status),
    })
  const detail = status === 422 ? firstDetail(value) : null
  return new GatewayFault(detail ?? `The gateway answered with status ${status}.`, {
    ...{ status, requestId, code: String(status), answer: value },
  })
}

/**
 * The first message in the body of a validation error: `{"detail": [{"loc": [...], "msg":
 * "..."}]}`.
 */
function firstDetail(value: unknown): string | null {
  const detail = memberOf(value, 'detail')
  const first: unknown = Array.isArray(detail) ? detail[0] : null
  const message = memberOf(first, 'msg')
  const place = memberOf(first, 'loc')
  return typeof message === 'string'
    ? `${Array.isArray(place) ? `${place.join('.')}: ` : ''}${message}`
    : null
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined
}
