import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'
import {
  callGateway,
  errorWordsOf,
  type Fetch,
  type GatewayAnswer,
  type GatewayCall,
  NoAnswer,
} from '#client/gateway.ts'

/** Why the page did not receive what it requested from its gateway. */
export class OwnGatewayFault extends Error {
  /** HTTP status. 0 when there was no answer. */
  readonly status: number
  /** The code from the gateway's error (`insufficient_scope`), or a code that this page defines. */
  readonly code: string
  /** Id of the call in the gateway's log. Null when there was no answer. */
  readonly requestId: string | null
  /** JSON of the answer. Undefined when there was no answer. */
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
    this.name = 'OwnGatewayFault'
    this.status = status
    this.code = code
    this.requestId = requestId
    this.answer = answer
  }
}

export type PageCall = Pick<GatewayCall, 'method' | 'body' | 'signal'> & {
  /** API key. Absent for public data. */
  readonly key?: string | null
}

/**
 * Asks the gateway that served this page. Throws OwnGatewayFault if the gateway answers with an
 * error or does not answer, AbortError when `signal` is aborted. Does NOT check the form of the
 * answer: a page shows what its own gateway says, and checks only evidence.
 */
export async function askOwnGateway<Answer>(path: string, call: PageCall = {}): Promise<Answer> {
  const answer = await sendCall(path, call)
  const value = readJson(answer)
  if (!isOk(answer) || value === undefined) throw faultOf(answer)
  return value as Answer
}

/** Returns the answer's text unchanged. Throws like askOwnGateway. */
export async function askText(path: string, call: PageCall = {}): Promise<string> {
  const answer = await sendCall(path, call)
  if (!isOk(answer)) throw faultOf(answer)
  return new TextDecoder().decode(answer.bytes)
}

/**
 * Parses evidence with all members and exact digits, as the checks need them. Throws like
 * askOwnGateway.
 */
export async function askEvidence(path: string, call: PageCall = {}): Promise<Json> {
  const answer = await sendCall(path, call)
  if (!isOk(answer)) throw faultOf(answer)
  try {
    return parseExactJson(answer.bytes)
  } catch (fault) {
    const reason = fault instanceof Error ? fault.message : 'unreadable'
    throw new OwnGatewayFault(`The gateway's answer is not valid JSON: ${reason}.`, {
      status: answer.status,
      code: 'bad_answer',
      requestId: answer.headers.get('x-request-id'),
    })
  }
}

/** A request has at most 10 MiB, and an answer is only slightly larger. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024

async function sendCall(path: string, call: PageCall): Promise<GatewayAnswer> {
  const { key = null, ...more } = call
  const gateway = { url: '', apiKey: key, fetch: fetchAlone, timeoutMs: null }
  try {
    return await callGateway(gateway, path, { bytesMax: ANSWER_BYTES_MAX, ...more })
  } catch (fault) {
    if (!(fault instanceof NoAnswer)) throw fault
    if (fault.code === 'too_large')
      throw new OwnGatewayFault(`The gateway's answer has more than ${ANSWER_BYTES_MAX} bytes.`, {
        status: fault.status ?? 0,
        code: 'too_large',
        requestId: null,
      })
    throw new OwnGatewayFault('The gateway does not answer.', {
      status: 0,
      code: 'unreachable',
      requestId: null,
    })
  }
}

/** Sends no cookies, because the key alone identifies the caller. */
const fetchAlone: Fetch = (input, init) => fetch(input, { ...init, credentials: 'omit' })

function isOk({ status }: GatewayAnswer): boolean {
  return status >= 200 && status < 300
}

/** Reads the fault from an answer with an error status. */
export async function readFault(response: Response): Promise<OwnGatewayFault> {
  const bytes = new Uint8Array(await response.arrayBuffer())
  return faultOf({ status: response.status, headers: response.headers, bytes })
}

function readJson({ bytes }: GatewayAnswer): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
}

function faultOf(answer: GatewayAnswer): OwnGatewayFault {
  const { status, headers, bytes } = answer
  const value = readJson(answer)
  const error = errorWordsOf(bytes)
  const detail = status === 422 ? firstDetail(value) : null
  return new OwnGatewayFault(
    error?.message ?? detail ?? `The gateway answered with status ${status}.`,
    {
      status,
      code: error?.code ?? String(status),
      requestId: headers.get('x-request-id'),
      answer: value,
    },
  )
}

/** The first message in a validation error: `{"detail": [{"loc": [...], "msg": "..."}]}`. */
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
