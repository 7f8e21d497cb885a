import { errors, Pool } from 'undici'
import { JsonError } from '../../../attestation/json/json-error.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberAt } from '../../../attestation/json/value.ts'
import { backOffMs } from '../../runtime/back-off.ts'
import { checkKeySafety, collectBytes } from '../files.ts'
import type { FindingCode } from './findings.ts'

/** Longest that one answer may take, from connect to the last byte, milliseconds. */
const ANSWER_TIMEOUT_MS_DEFAULT = 60_000
/**
 * How often a question is asked before the audit gives up: over a minute and a half of a gateway
 * that is down.
 */
export const ATTEMPTS_MAX = 8
/** An answer that took too long is likely to take too long again. */
export const SLOW_ATTEMPTS_MAX = 2
export const BACK_OFF_MAX_MS = 30_000
const BACK_OFF = { minMs: 250, maxMs: BACK_OFF_MAX_MS }

/** Questions to a gateway over HTTP. */
export type GatewayHttp = {
  /**
   * The JSON object at a path (with its query) below the base URL. Asks again, later each time,
   * when it is told to (429, 503) or the connection is lost. Throws GatewayFault; what `signal` was
   * aborted with.
   */
  fetchObject(path: string, answer: { readonly bytesMax: number }): Promise<JsonObject>
  close(): Promise<void>
}

type GatewayHttpOptions = {
  /** Base URL, which may have a path. */
  readonly url: string
  readonly apiKey: string | null
  /** Told beside a refusal for want of a key (401): how to give one. */
  readonly keyHint?: string | null
  readonly timeoutMs?: number
  readonly signal: AbortSignal
  /** Waits so many milliseconds. */
  readonly sleep: (durationMs: number) => Promise<void>
}

/**
 * Gives a client of the gateway at `url`, which is not trusted: answers are bounded in size and
 * time, read as strict JSON, and redirects are not followed. Throws CliError when the key would
 * leave this machine unencrypted.
 */
export function openGatewayHttp(options: GatewayHttpOptions): GatewayHttp {
  const url = new URL(options.url)
  checkKeySafety(url, options.apiKey)
  const timeoutMs = options.timeoutMs ?? ANSWER_TIMEOUT_MS_DEFAULT
  const base = url.pathname.replace(/\/+$/, '')
  const pool = new Pool(url.origin, { connections: 4, connectTimeout: timeoutMs })
  const headers = options.apiKey === null ? {} : { authorization: `Bearer ${options.apiKey}` }

  async function attempt(path: string, bytesMax: number): Promise<Answer> {
    const timeout = AbortSignal.timeout(timeoutMs)
    const signal = AbortSignal.any([options.signal, timeout])
    try {
      const answer = await pool.request({ method: 'GET', path: `${base}${path}`, headers, signal })
      const tooLarge = () =>
        new GatewayFault('answer_too_large', {
          where: path,
          message: `expected an answer of at most ${bytesMax} bytes`,
        })
      const body = await collectBytes(answer.body, bytesMax, tooLarge)
      return { status: answer.statusCode, retryAfter: answer.headers['retry-after'], body }
    } catch (fault) {
      options.signal.throwIfAborted()
      if (fault instanceof GatewayFault) throw fault
      if (timeout.aborted || fault instanceof errors.ConnectTimeoutError)
        throw new GatewayFault('answer_too_slow', {
          where: path,
          message: `expected a complete answer within ${timeoutMs} ms`,
        })
      const message = `no answer (${codeOf(fault)})`
      throw new GatewayFault('gateway_unreachable', { where: path, message })
    }
  }

  return {
    async fetchObject(path, { bytesMax }) {
      for (let tried = 1; ; tried++) {
        try {
          const answer = await attempt(path, bytesMax)
          if (answer.status === 200) return readObject(answer.body, path)
          throw refusalOf(answer, path, options.keyHint)
        } catch (fault) {
          if (!(fault instanceof GatewayFault) || !mayRetry(fault, tried)) throw fault
          await options.sleep(pauseOf(tried, fault.retryAfter))
          options.signal.throwIfAborted()
        }
      }
    },
    close: () => pool.destroy(),
  }
}

type Answer = {
  readonly status: number
  readonly retryAfter: string | readonly string[] | undefined
  readonly body: Uint8Array
}

function refusalOf(
  { status, body, retryAfter }: Answer,
  where: string,
  keyHint: string | null = null,
): GatewayFault {
  if (status >= 300 && status < 400)
    return new GatewayFault('redirected', {
      where,
      status,
      message: `expected an answer, got a redirect (${status})`,
    })
  const isPassing = status === 429 || status === 502 || status === 503 || status === 504
  return new GatewayFault(isPassing ? 'gateway_unreachable' : 'answer_refused', {
    where,
    status,
    retryAfter,
    message: `the gateway answered ${status}${wordsOf(body)}${status === 401 && keyHint ? ` (${keyHint})` : ''}`,
  })
}

function mayRetry({ code }: GatewayFault, tried: number): boolean {
  if (code === 'answer_too_slow') return tried < SLOW_ATTEMPTS_MAX
  return code === 'gateway_unreachable' && tried < ATTEMPTS_MAX
}

/**
 * As long as the gateway wishes, when it says so in seconds, but never longer than our own longest.
 */
function pauseOf(tried: number, wished: Answer['retryAfter']): number {
  const own = backOffMs(tried, BACK_OFF, { jitter: 'none' })
  const seconds = typeof wished === 'string' && /^\d{1,6}$/.test(wished) ? Number(wished) : 0
  return Math.min(Math.max(own, seconds * 1000), BACK_OFF_MAX_MS)
}

function readObject(body: Uint8Array, where: string): JsonObject {
  try {
    const value = parseExactJson(body)
    if (isJsonObject(value)) return value
  } catch (fault) {
    if (!(fault instanceof JsonError)) throw fault
    const message = `expected JSON with one meaning only: ${fault.message}`
    throw new GatewayFault('answer_invalid', { where, message })
  }
  throw new GatewayFault('answer_invalid', { where, message: 'expected a JSON object' })
}

/** The message of the gateway's error envelope, when the answer is one. */
function wordsOf(body: Uint8Array): string {
  try {
    const message = memberAt(parseExactJson(body), 'error', 'message')
    return typeof message === 'string' ? `: ${message}` : ''
  } catch {
    return ''
  }
}

function codeOf(fault: unknown): string {
  if (!(fault instanceof Error)) return 'unknown fault'
  return 'code' in fault && typeof fault.code === 'string' ? fault.code : fault.message
}

/** The codes of a gateway that does not answer as it must. */
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
 * The gateway's answer cannot be used: what was to be read from it is not audited. The message may
 * hold its words.
 */
export class GatewayFault extends Error {
  override readonly name = 'GatewayFault'
  readonly code: GatewayFaultCode
  /** What was asked: path and query. */
  readonly where: string
  /** Of an answer; null when there was none. */
  readonly status: number | null
  /** How long the answer wishes that the next question waits, as it says. */
  readonly retryAfter: Answer['retryAfter']

  constructor(
    code: GatewayFaultCode,
    fault: { readonly where: string; readonly message: string } & Partial<
      Pick<Answer, 'status' | 'retryAfter'>
    >,
  ) {
    super(fault.message)
    this.code = code
    this.where = fault.where
    this.status = fault.status ?? null
    this.retryAfter = fault.retryAfter
  }
}
