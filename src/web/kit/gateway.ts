import { concatBytes } from '../../../attestation/bytes.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import type { Json } from '../../../attestation/json/value.ts'

/** Why the gateway did not give what it was asked for. */
export class GatewayFault extends Error {
  /** HTTP status; 0 when there was no answer. */
  readonly status: number
  /** The error's own code (`insufficient_scope`), or ours. */
  readonly code: string
  /** By which the operator finds the call in his log; null without an answer. */
  readonly requestId: string | null
  /** What it says beside: the answer's JSON; undefined without one. */
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
  /** API key; left out for what is public. */
  readonly key?: string | null
  /** Sent as JSON. */
  readonly body?: object
  readonly signal?: AbortSignal
}

/**
 * Asks this page's own gateway, and gives its JSON. Throws GatewayFault for whatever is no JSON
 * answer; AbortError when `signal` is aborted.
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

/** Asks this page's own gateway for what is to be saved: the text as it came. Throws likewise. */
export async function askText(path: string, call: GatewayCall = {}): Promise<string> {
  const { response, bytes } = await sendCall(path, call)
  const text = new TextDecoder().decode(bytes)
  if (!response.ok) throw faultOf(response, readJson(text))
  return text
}

/**
 * Asks this page's own gateway for evidence: JSON that is read exactly, so that no member and no
 * digit is other than what is checked. Throws as askGateway.
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

/** Answers are this long at most, bytes: a request has 10 MiB, an answer little more. */
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

/** Not more than a page can hold, whatever the gateway sends. */
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

/** Gives the fault that an answer with an error status tells. */
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
  const told = status === 422 ? firstDetail(value) : null
  return new GatewayFault(told ?? `The gateway answered with status ${status}.`, {
    ...{ status, requestId, code: String(status), answer: value },
  })
}

/** Of the body that validation errors have: `{"detail": [{"loc": [...], "msg": "..."}]}`. */
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
