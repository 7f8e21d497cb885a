import { Pool } from 'undici'
import { z } from 'zod'

/** Most calls in one batch; many endpoints refuse more. */
const BATCH_CALLS_MAX = 100
/** Most bytes of one answer: 100 receipts with their logs have under 300 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
/** Time for one HTTP exchange, from connect to the last byte. */
const RPC_TIMEOUT_MS = 10_000
/** How many characters of an endpoint's error message are kept. */
const ERROR_MESSAGE_LENGTH_MAX = 200

export type RpcCall = { readonly method: string; readonly params: readonly unknown[] }

/** The endpoint's answer to one call. The endpoint wrote everything in it: check it before use. */
export type RpcReply =
  | { readonly kind: 'result'; readonly value: unknown }
  | { readonly kind: 'error'; readonly code: number | null; readonly message: string }

/** JSON-RPC 2.0 over HTTP. */
export type Rpc = {
  /**
   * The result of one call. Throws RpcError; `refused` when the endpoint answers with an error
   * object.
   */
  call(method: string, params: readonly unknown[], signal?: AbortSignal): Promise<unknown>
  /**
   * Replies in the order of the calls, which are sent BATCH_CALLS_MAX at a time. Throws RpcError,
   * except `refused`.
   */
  batch(calls: readonly RpcCall[], signal?: AbortSignal): Promise<readonly RpcReply[]>
  /** Ends running exchanges and closes all connections. */
  close(): Promise<void>
}

/**
 * The endpoint could not be reached, or its answer made no sense; the call may be tried again. The
 * message never holds the URL's secrets.
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
 * Client for the endpoint at `url` (http or https; user and password in it become an Authorization
 * header). Connections are kept open between calls. No retries: the caller knows which calls may be
 * repeated.
 */
export function createRpc(options: {
  readonly url: string
  readonly timeoutMs?: number
  readonly answerBytesMax?: number
}): Rpc {
  const { origin, path, headers } = splitUrl(options.url)
  const timeoutMs = options.timeoutMs ?? RPC_TIMEOUT_MS
  const answerBytesMax = options.answerBytesMax ?? ANSWER_BYTES_MAX
  const pool = new Pool(origin, { connections: 4, connectTimeout: timeoutMs })

  async function post(payload: unknown, signal: AbortSignal | undefined): Promise<unknown> {
    const timeout = AbortSignal.timeout(timeoutMs)
    const until = signal === undefined ? timeout : AbortSignal.any([signal, timeout])
    try {
      const answer = await pool.request({
        path,
        method: 'POST',
        headers,
        body: JSON.stringify(payload),
        signal: until,
      })
      const bytes = await readBounded(answer.body, answerBytesMax)
      if (answer.statusCode !== 200) {
        throw new RpcError('bad_status', `expected status 200, got ${answer.statusCode}`)
      }
      return parseAnswer(bytes)
    } catch (error) {
      if (error instanceof RpcError) throw error
      signal?.throwIfAborted()
      if (timeout.aborted)
        throw new RpcError('timeout', `no complete answer within ${timeoutMs} ms`)
      throw new RpcError('unreachable', describeNetworkError(error), { cause: error })
    }
  }

  async function batch(
    calls: readonly RpcCall[],
    signal?: AbortSignal,
  ): Promise<readonly RpcReply[]> {
    const replies: RpcReply[] = []
    for (let start = 0; start < calls.length; start += BATCH_CALLS_MAX) {
      const part = calls.slice(start, start + BATCH_CALLS_MAX)
      const payload = part.map((call, id) => ({ jsonrpc: '2.0', id, ...call }))
      replies.push(...readReplies(await post(payload, signal), part.length))
    }
    return replies
  }

  return {
    batch,
    call: async (method, params, signal) => {
      const reply = readReply(await post({ jsonrpc: '2.0', id: 0, method, params }, signal))
      if (reply.kind === 'result') return reply.value
      throw new RpcError('refused', `${method}: ${reply.message}`)
    },
    close: () => pool.destroy(),
  }
}

function splitUrl(text: string): { origin: string; path: string; headers: Record<string, string> } {
  const url = new URL(text)
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (url.username !== '' || url.password !== '') {
    const credentials = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
    headers.authorization = `Basic ${Buffer.from(credentials).toString('base64')}`
  }
  return { origin: url.origin, path: `${url.pathname}${url.search}`, headers }
}

async function readBounded(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of body) {
    bytes += part.length
    if (bytes > bytesMax) {
      throw new RpcError('answer_too_large', `expected an answer of at most ${bytesMax} bytes`)
    }
    parts.push(part)
  }
  return Buffer.concat(parts)
}

function parseAnswer(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    throw new RpcError('bad_answer', `expected JSON, got ${bytes.length} bytes of something else`)
  }
}

/** Endpoints may answer a batch in any order (JSON-RPC 2.0 section 6); the `id` names the call. */
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

function describeNetworkError(error: unknown): string {
  const code = isObject(error) ? error.code : undefined
  return typeof code === 'string'
    ? `no connection to the chain (${code})`
    : 'no connection to the chain'
}

// Numbers and hashes as the Ethereum JSON-RPC specification writes them ("quantity" and "data").

/** A number from 0 to 2^53-1. */
export const Quantity = z
  .string()
  .regex(/^0x[0-9a-fA-F]{1,14}$/)
  .transform((text) => Number.parseInt(text, 16))
  .refine(Number.isSafeInteger)

/** A number of up to 256 bits, as text. */
export const BigQuantity = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/)

/** Bytes: 0x hex, as given. */
export const HexBytes = z.string().regex(/^0x(?:[0-9a-fA-F]{2})*$/)

/** 32 bytes: 0x, lower case. */
export const Hash = lowerCase(/^0x[0-9a-fA-F]{64}$/)

/** 20 bytes: 0x, lower case. */
export const Address = lowerCase(/^0x[0-9a-fA-F]{40}$/)

function lowerCase(form: RegExp) {
  return z
    .string()
    .regex(form)
    .transform((text) => text.toLowerCase())
}

/** A number as the specification writes it. */
export function toQuantity(value: number): string {
  return `0x${value.toString(16)}`
}

/**
 * The reply's value, checked against `shape`. Throws RpcError `refused`, and `bad_answer`, which
 * names the member.
 */
export function readAs<T>(shape: z.ZodType<T>, reply: RpcReply | undefined): T {
  if (reply?.kind === 'error') throw new RpcError('refused', reply.message)
  return readValue(shape, reply?.value)
}

/** The same for the result of a single call. */
export function readValue<T>(shape: z.ZodType<T>, value: unknown): T {
  const parsed = shape.safeParse(value)
  if (parsed.success) return parsed.data
  const what = parsed.error.issues[0]
  throw new RpcError(
    'bad_answer',
    `unexpected value at ${what?.path.join('.') || 'result'}: ${what?.message}`,
  )
}
