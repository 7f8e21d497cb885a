import { type Dispatcher, Pool } from 'undici'
import { EndpointError } from './endpoint-error.ts'
import { readRefusal } from './refusal.ts'
import type { OpenAiApi } from './settings.ts'

/** Connections to one service; calls beyond that wait for one. */
export const ENDPOINT_CONNECTIONS_MAX = 64
/** Until a connection stands. */
export const CONNECT_TIMEOUT_MS = 5_000
const KEEP_ALIVE_MS = 30_000
/** Bytes of an answer that is a refusal. */
const REFUSAL_BYTES_MAX = 64 * 1024

export type EndpointCall = {
  readonly method: 'GET' | 'POST'
  /** Below the endpoint's address, `/embeddings`, with a query if there is one. Made by us, never by a caller. */
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Ends the call; its reason is thrown. */
  readonly signal: AbortSignal
  /** Counts bytes of the answer as held; what it throws ends the call. */
  readonly reserve: (bytes: number) => void
}

/** A service at an address of the operator's. */
export type Endpoint = {
  /** JSON value of a 2xx answer, otherwise unchecked. Throws EndpointError, the signal's reason, or what `reserve` throws. */
  ask(call: EndpointCall): Promise<unknown>
  /** Ends all calls, and closes all connections. */
  close(): Promise<void>
}

export type EndpointOptions = {
  readonly url: string
  /** Sent with every call; may hold the credential. */
  readonly headers: Readonly<Record<string, string>>
  /** For a whole call. */
  readonly timeoutMs: number
  readonly answerBytesMax: number
}

/** Opens what a room calls; whoever gives it closes it. */
export type OpenEndpoint = (options: EndpointOptions) => Endpoint

/** Options of an API in OpenAI's form, of which one answer has at most `answerBytesMax`. */
export function openAiOptions(
  { url, apiKey, timeoutMs }: OpenAiApi,
  answerBytesMax: number,
): EndpointOptions {
  const headers: Record<string, string> = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  return { url, headers, timeoutMs, answerBytesMax }
}

/** Client of the service at `url`, which is an address of HTTP, with a path or without one. Nothing is sent before a call. */
export function createEndpoint(options: EndpointOptions): Endpoint {
  const { timeoutMs, answerBytesMax } = options
  const { origin, pathname } = new URL(options.url)
  const prefix = pathname.replace(/\/+$/, '')
  const pool = new Pool(origin, {
    connections: ENDPOINT_CONNECTIONS_MAX,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
  })

  async function ask({ method, path, headers, body, signal, reserve }: EndpointCall): Promise<unknown> {
    signal.throwIfAborted()
    const timeout = AbortSignal.timeout(timeoutMs)
    try {
      const reply = await pool.request({
        method,
        path: prefix + path,
        headers: { accept: 'application/json', ...options.headers, ...headers },
        body: body ?? null,
        signal: AbortSignal.any([signal, timeout]),
      })
      if (reply.statusCode < 200 || reply.statusCode > 299) throw await refusalOf(reply)
      return parseAnswer(await readBytes(reply.body, { bytesMax: answerBytesMax, reserve }))
    } catch (error) {
      signal.throwIfAborted()
      if (timeout.aborted) throw new EndpointError('timeout', `no complete answer within ${timeoutMs} ms`)
      throw isNetworkError(error) ? new EndpointError('unreachable', `broken off (${error.code})`) : error
    }
  }

  return { ask, close: () => pool.destroy() }
}

async function refusalOf({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<EndpointError> {
  const bytes = await readBytes(body, { bytesMax: REFUSAL_BYTES_MAX, reserve: () => undefined }).catch(
    (error: unknown) => {
      if (error instanceof EndpointError) return Buffer.alloc(0)
      throw error
    },
  )
  const refusal = readRefusal(statusCode, { body: tryJson(bytes), retryAfter: headers['retry-after'] })
  return new EndpointError('refused', `expected status 200, got ${statusCode}`, refusal)
}

/** Leaving the iteration destroys the body, and with it the service's call. */
async function readBytes(
  body: AsyncIterable<Uint8Array>,
  { bytesMax, reserve }: { readonly bytesMax: number; readonly reserve: (bytes: number) => void },
): Promise<Buffer> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of body) {
    bytes += part.length
    if (bytes > bytesMax)
      throw new EndpointError('answer_too_large', `expected at most ${bytesMax} bytes, got more`)
    reserve(part.length)
    parts.push(part)
  }
  return Buffer.concat(parts)
}

function parseAnswer(bytes: Buffer): unknown {
  const value = tryJson(bytes)
  if (value === undefined)
    throw new EndpointError('bad_answer', `expected JSON, got ${bytes.length} bytes of something else`)
  return value
}

function tryJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    return undefined
  }
}

/** Errors of sockets, TLS and the HTTP parser have a code in capitals; ours have none, or another form. */
function isNetworkError(error: unknown): error is Error & { readonly code: string } {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'string' &&
    /^[A-Z][A-Z0-9_]+$/.test(error.code)
  )
}
