import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import {
  callGateway,
  checkKeySafety,
  errorWordsOf,
  type Fetch,
  type GatewayAnswer,
  NoAnswer,
} from '#client/gateway.ts'
import type { FindingCode } from './findings.ts'

/** Time limit for one answer, from the connection to the last byte. */
const ANSWER_TIMEOUT_MS_DEFAULT = 60_000
/** The attempts and their pauses cover an outage of more than 90 seconds. */
export const ATTEMPTS_MAX = 8
/** Maximum number of attempts after timeouts: a slow answer will probably be slow again. */
export const SLOW_ATTEMPTS_MAX = 2
export const BACK_OFF_MAX_MS = 30_000
const BACK_OFF_MIN_MS = 250

export type GatewayHttp = {
  /**
   * Fetches the JSON object at a path (with its query) below the base URL. Retries statuses 429,
   * 502, 503 and 504 and broken connections. Throws GatewayFault, and the abort reason of `signal`.
   */
  fetchObject(path: string, answer: { readonly bytesMax: number }): Promise<JsonObject>
}

type GatewayHttpOptions = {
  /** Base URL, which may have a path. */
  readonly url: string
  readonly apiKey: string | null
  /** The error message for status 401 contains this text, which explains how to provide a key. */
  readonly keyHint?: string | null
  readonly timeoutMs?: number | undefined
  readonly signal: AbortSignal
  readonly sleep: (durationMs: number) => Promise<void>
  readonly fetch?: Fetch
}

/**
 * The client does not trust the gateway: it limits the size and time of answers, and parses strict
 * JSON. It follows no redirects. Throws UnsafeKey.
 */
export function openGatewayHttp(options: GatewayHttpOptions): GatewayHttp {
  const { apiKey, keyHint, signal, sleep, fetch = globalThis.fetch } = options
  const { timeoutMs = ANSWER_TIMEOUT_MS_DEFAULT } = options
  const base = new URL(options.url)
  checkKeySafety(base, apiKey)
  const url = `${base.origin}${base.pathname.replace(/\/+$/, '')}`
  return {
    async fetchObject(path, { bytesMax }) {
      const answer = await callGateway({ url, apiKey, fetch, timeoutMs }, path, {
        bytesMax,
        signal,
        retryAfterMs,
        pause: sleep,
      }).catch((fault: unknown) => {
        if (fault instanceof NoAnswer) throw faultOf(fault, path)
        throw fault
      })
      if (answer.status === 200) return readObject(answer.bytes, path)
      throw refusalOf(answer, path, keyHint)
    },
  }
}

/** Temporary statuses: a later attempt can succeed. */
const PASSING: ReadonlySet<number> = new Set([429, 502, 503, 504])

const NO_ANSWER_ATTEMPTS_MAX: Readonly<Record<NoAnswer['code'], number>> = {
  unreachable: ATTEMPTS_MAX,
  too_slow: SLOW_ATTEMPTS_MAX,
  too_large: 1,
  redirected: 1,
}

function retryAfterMs(tried: number, outcome: GatewayAnswer | NoAnswer): number | null {
  if (outcome instanceof NoAnswer)
    return tried < NO_ANSWER_ATTEMPTS_MAX[outcome.code] ? pauseOf(tried, null) : null
  if (!PASSING.has(outcome.status) || tried >= ATTEMPTS_MAX) return null
  return pauseOf(tried, outcome.headers.get('retry-after'))
}

/** Returns the longer of our back-off and the gateway's Retry-After, up to our maximum. */
function pauseOf(tried: number, wished: string | null): number {
  const seconds = wished !== null && /^\d{1,6}$/.test(wished) ? Number(wished) : 0
  return Math.min(Math.max(BACK_OFF_MIN_MS * 2 ** (tried - 1), seconds * 1000), BACK_OFF_MAX_MS)
}

function faultOf({ code, status, message }: NoAnswer, where: string): GatewayFault {
  switch (code) {
    case 'redirected':
      return new GatewayFault('redirected', {
        where,
        status,
        message: `expected an answer, got a redirect (${status})`,
      })
    case 'too_large':
      return new GatewayFault('answer_too_large', { where, message })
    case 'too_slow':
      return new GatewayFault('answer_too_slow', { where, message })
    case 'unreachable':
      return new GatewayFault('gateway_unreachable', { where, message })
  }
}

function refusalOf(
  { status, bytes }: GatewayAnswer,
  where: string,
  keyHint: string | null = null,
): GatewayFault {
  const words = errorWordsOf(bytes)?.message
  const said = words === undefined ? '' : `: ${words}`
  const hint = status === 401 && keyHint !== null ? ` (${keyHint})` : ''
  return new GatewayFault(PASSING.has(status) ? 'gateway_unreachable' : 'answer_refused', {
    where,
    status,
    message: `the gateway answered ${status}${said}${hint}`,
  })
}

function readObject(body: Uint8Array, where: string): JsonObject {
  try {
    const value = parseExactJson(body)
    if (isJsonObject(value)) return value
  } catch (fault) {
    if (!(fault instanceof JsonError)) throw fault
    if (fault.code === 'too_many')
      throw new GatewayFault('answer_too_large', { where, message: fault.message })
    const message = `expected JSON with one meaning only: ${fault.message}`
    throw new GatewayFault('answer_invalid', { where, message })
  }
  throw new GatewayFault('answer_invalid', { where, message: 'expected a JSON object' })
}

type GatewayFaultCode = Extract<
  FindingCode,
  | 'gateway_unreachable'
  | 'answer_refused'
  | 'answer_invalid'
  | 'answer_too_large'
  | 'answer_too_slow'
  | 'redirected'
  | 'cursor_stuck'
  | 'leaf_missing'
>

/**
 * The gateway's answer cannot be used. The requested data stays unchecked. The message may contain
 * text from the gateway.
 */
export class GatewayFault extends Error {
  override readonly name = 'GatewayFault'
  readonly code: GatewayFaultCode
  /** Path and query. */
  readonly where: string
  /** HTTP status of the answer. Null without an answer. */
  readonly status: number | null

  constructor(
    code: GatewayFaultCode,
    fault: {
      readonly where: string
      readonly message: string
      readonly status?: number | null
    },
  ) {
    super(fault.message)
    this.code = code
    this.where = fault.where
    this.status = fault.status ?? null
  }
}
