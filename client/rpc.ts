import { encodeBase64, encodeUtf8 } from '#attestation/bytes.ts'
import { type Fetch, readAtMost } from './gateway.ts'

/** Many endpoints refuse larger batches. */
const BATCH_CALLS_MAX = 100
/** Bytes. 100 receipts with their logs take less than 300 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** Covers one HTTP exchange, from the connection to the last byte. */
const RPC_TIMEOUT_MS = 10_000
const ERROR_MESSAGE_LENGTH_MAX = 200

export type RpcCall = { readonly method: string; readonly params: readonly unknown[] }

/** The endpoint's answer to one call. It is not trusted: check it before use. */
export type RpcReply =
  | { readonly kind: 'result'; readonly value: unknown }
  | { readonly kind: 'error'; readonly code: number | null; readonly message: string }

/** JSON-RPC 2.0 over HTTP. */
export type Rpc = {
  /** Throws RpcError, with code `refused` if the endpoint answers with an error object. */
  call(method: string, params: readonly unknown[], signal?: AbortSignal): Promise<unknown>
  /** Returns the replies in the order of the calls. Throws RpcError, but never with `refused`. */
  batch(calls: readonly RpcCall[], signal?: AbortSignal): Promise<readonly RpcReply[]>
  /** Aborts running exchanges. */
  close(): Promise<void>
}

/**
 * The endpoint did not answer, or its answer is invalid. The call may be repeated. The message
 * never contains secrets from the URL.
 */
export class RpcError extends Error {
  override readonly name = 'RpcError'
  readonly code:
    | 'unreachable'
    | 'timeout'
    | 'bad_status'
    | 'bad_answer'
    | 'answer_too_large'
    | 'refused'
  constructor(code: RpcError['code'], message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/**
 * `url` is http or https. A user and password in the URL become an Authorization header. The client
 * follows no redirects and does not retry: only the caller knows which calls may be repeated.
 */
export function createRpc(options: {
  readonly url: string
  readonly fetch?: Fetch
  readonly timeoutMs?: number
  readonly answerBytesMax?: number
}): Rpc {
  const { fetch = globalThis.fetch } = options
  const timeoutMs = options.timeoutMs ?? RPC_TIMEOUT_MS
  const bytesMax = options.answerBytesMax ?? ANSWER_BYTES_MAX
  const { url, headers } = splitUrl(options.url)
  const running = new Set<AbortController>()

  async function post(payload: unknown, signal: AbortSignal | undefined): Promise<unknown> {
    const timeout = AbortSignal.timeout(timeoutMs)
    const exchange = new AbortController()
    running.add(exchange)
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers,
        body: JSON.stringify(payload),
        redirect: 'manual',
        signal: AbortSignal.any([timeout, exchange.signal, ...(signal ? [signal] : [])]),
      })
      const bytes = await readAtMost(response, bytesMax)
      if (bytes === null)
        throw new RpcError('answer_too_large', `expected an answer of at most ${bytesMax} bytes`)
      const { status } = response
      const refusal = isRefusalStatus(status) ? parseRefusal(bytes) : null
      if (refusal !== null) return refusal
      if (status !== 200) throw new RpcError('bad_status', `expected status 200, got ${status}`)
      return parseAnswer(bytes)
    } catch (error) {
      if (error instanceof RpcError) throw error
      signal?.throwIfAborted()
      if (timeout.aborted)
        throw new RpcError('timeout', `no complete answer within ${timeoutMs} ms`)
      throw new RpcError('unreachable', describeNetworkError(error), { cause: error })
    } finally {
      running.delete(exchange)
    }
  }

  return {
    async batch(calls, signal) {
      const replies: RpcReply[] = []
      for (let start = 0; start < calls.length; start += BATCH_CALLS_MAX) {
        const part = calls.slice(start, start + BATCH_CALLS_MAX)
        const payload = part.map((call, id) => ({ jsonrpc: '2.0', id, ...call }))
        replies.push(...readReplies(await post(payload, signal), part.length))
      }
      return replies
    },
    async call(method, params, signal) {
      const reply = readReply(await post({ jsonrpc: '2.0', id: 0, method, params }, signal))
      if (reply.kind === 'result') return reply.value
      throw new RpcError('refused', `${method}: ${reply.message}`)
    },
    async close() {
      for (const exchange of running) exchange.abort()
    },
  }
}

/** Removes the password, which `fetch` refuses. */
function splitUrl(text: string): { readonly url: URL; readonly headers: Record<string, string> } {
  const url = new URL(text)
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (url.username !== '' || url.password !== '') {
    const credentials = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
    headers.authorization = `Basic ${encodeBase64(encodeUtf8(credentials))}`
  }
  url.username = ''
  url.password = ''
  return { url, headers }
}

/** 401, 408 and 429 concern the caller or the moment, so they do not refuse the call itself. */
function isRefusalStatus(status: number): boolean {
  return status >= 400 && status < 500 && ![401, 408, 429].includes(status)
}

/**
 * Some endpoints send a JSON-RPC error with such a status, for example 413 if a query covers too
 * many blocks. Returns null if the body has no JSON-RPC error.
 */
function parseRefusal(bytes: Uint8Array): unknown {
  try {
    const answer: unknown = JSON.parse(new TextDecoder().decode(bytes))
    return [answer].flat().some((entry) => isObject(entry) && isObject(entry.error)) ? answer : null
  } catch {
    return null
  }
}

function parseAnswer(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    throw new RpcError('bad_answer', `expected JSON, got ${bytes.length} bytes of something else`)
  }
}

/** Endpoints may answer a batch in any order (JSON-RPC 2.0 section 6): `id` identifies the call. */
function readReplies(answer: unknown, count: number): readonly RpcReply[] {
  if (!Array.isArray(answer)) {
    const reply = readReply(answer)
    throw new RpcError(
      'bad_answer',
      reply.kind === 'error'
        ? `the batch was refused: ${reply.message}`
        : 'expected a list for a batch',
    )
  }
  const byId = new Map<unknown, unknown>()
  for (const entry of answer) if (isObject(entry)) byId.set(entry.id, entry)
  return Array.from({ length: count }, (_, id) => readReply(byId.get(id)))
}

function readReply(entry: unknown): RpcReply {
  if (!isObject(entry)) throw new RpcError('bad_answer', 'expected a reply for each call')
  if (isObject(entry.error)) {
    const { code, message } = entry.error
    return {
      kind: 'error',
      code: typeof code === 'number' ? code : null,
      message: (typeof message === 'string' ? message : 'no message').slice(
        0,
        ERROR_MESSAGE_LENGTH_MAX,
      ),
    }
  }
  if (!('result' in entry))
    throw new RpcError('bad_answer', 'expected a reply with a result or an error')
  return { kind: 'result', value: entry.result }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The `cause` of an error that `fetch` threw has the actual reason. */
function describeNetworkError(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  const code = isObject(cause) ? cause.code : undefined
  return typeof code === 'string'
    ? `no connection to the chain (${code})`
    : 'no connection to the chain'
}

/** Writes a "quantity" of the Ethereum JSON-RPC specification. */
export function toQuantity(value: number): string {
  return `0x${value.toString(16)}`
}

/** Reads a quantity from 0 to 2^53-1. Returns null for any other value. */
export function readQuantity(value: unknown): number | null {
  if (typeof value !== 'string' || !/^0x[0-9a-fA-F]{1,14}$/.test(value)) return null
  const number = Number.parseInt(value, 16)
  return Number.isSafeInteger(number) ? number : null
}
