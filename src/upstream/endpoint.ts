import { randomUUID } from 'node:crypto'
import { type Dispatcher, Pool } from 'undici'
import { REFUSAL_BYTES_MAX, type Refusal, readRefusal } from '#enclave/protocol/refusal.ts'
import { CONTENT_CODINGS } from '../runtime/codings.ts'
import type { OnStarted } from '../runtime/starting.ts'
import type { OpenAiApi } from './settings.ts'

/** Further calls wait for a free connection. */
const ENDPOINT_CONNECTIONS_MAX = 64
const CONNECT_TIMEOUT_MS = 5_000
const KEEP_ALIVE_MS = 30_000

export type EndpointCall = {
  readonly method: 'GET' | 'POST'
  /**
   * Added to the endpoint's address: `/embeddings`, perhaps with a query. Only our code chooses
   * this path, never a caller.
   */
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /**
   * Credentials in the path, or in a header of this service alone, to leave out of a refusal's
   * message. `authorization` and `x-api-key` are always left out.
   */
  readonly secrets?: readonly string[]
  readonly signal: AbortSignal
  /** Counts the answer's bytes in memory. If it throws, the call ends with this error. */
  readonly reserve: (bytes: number) => void
}

/** A service at an address that the operator configured. */
export type Endpoint = {
  /**
   * Returns the JSON value of a 2xx answer, of any shape. Throws EndpointError, the signal's
   * reason, or the error that `reserve` threw.
   */
  ask(call: EndpointCall): Promise<unknown>
  close(): Promise<void>
}

type EndpointOptions = {
  readonly url: string
  readonly ca?: readonly string[] | null
  /** The headers are read again for each call. They may contain the credential. */
  readonly headers: Readonly<Record<string, string>>
  /** Limit of the whole call. */
  readonly timeoutMs: number
  readonly answerBytesMax: number
}

/** Opens a client. The client is closed when the gateway stops. */
export function openEndpoint(options: EndpointOptions, onStarted: OnStarted): Endpoint {
  const endpoint = createEndpoint(options)
  onStarted(() => endpoint.close())
  return endpoint
}

export function openAiOptions(api: OpenAiApi, answerBytesMax: number): EndpointOptions {
  const { url, timeoutMs } = api
  return {
    url,
    timeoutMs,
    answerBytesMax,
    get headers(): Readonly<Record<string, string>> {
      return api.apiKey === null ? {} : { authorization: `Bearer ${api.apiKey}` }
    },
  }
}

/** `url` may have a path. The first call opens a connection. */
export function createEndpoint(options: EndpointOptions): Endpoint {
  const { timeoutMs, answerBytesMax } = options
  const { origin, pathname } = new URL(options.url)
  const prefix = pathname.replace(/\/+$/, '')
  const pool = new Pool(origin, {
    connections: ENDPOINT_CONNECTIONS_MAX,
    connect: { timeout: CONNECT_TIMEOUT_MS, ca: options.ca?.slice() },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
  })

  async function ask({
    method,
    path,
    headers,
    body,
    secrets = [],
    signal,
    reserve,
  }: EndpointCall): Promise<unknown> {
    signal.throwIfAborted()
    const timeout = AbortSignal.timeout(timeoutMs)
    const own = { ...options.headers, ...headers }
    try {
      const reply = await pool.request({
        method,
        path: prefix + path,
        headers: {
          accept: 'application/json',
          'accept-encoding': 'identity',
          ...own,
        },
        body: body ?? null,
        signal: AbortSignal.any([signal, timeout]),
      })
      if (reply.statusCode < 200 || reply.statusCode > 299)
        throw await refusalOf(reply, [...secrets, ...secretsIn(own)], reserve)
      const bytes = await readBytes(reply.body, { bytesMax: answerBytesMax, reserve })
      const { 'content-encoding': coding } = reply.headers
      return parseAnswer(await undoCoding(bytes, { coding, bytesMax: answerBytesMax, reserve }))
    } catch (error) {
      signal.throwIfAborted()
      if (timeout.aborted)
        throw new EndpointError('timeout', `no complete answer within ${timeoutMs} ms`)
      throw isNetworkError(error)
        ? new EndpointError('unreachable', `broken off (${error.code})`)
        : error
    }
  }

  return { ask, close: () => pool.destroy() }
}

async function refusalOf(
  { statusCode, headers, body }: Dispatcher.ResponseData,
  secrets: readonly string[],
  reserve: EndpointCall['reserve'],
): Promise<EndpointError> {
  const bytes = await readBytes(body, { bytesMax: REFUSAL_BYTES_MAX, reserve }).catch(
    (error: unknown) => {
      if (error instanceof EndpointError) return Buffer.alloc(0)
      throw error
    },
  )
  const text = secrets.reduce(
    (shown, secret) => shown.replaceAll(secret, '[credential]'),
    bytes.toString('utf8'),
  )
  const refusal = { ...readRefusal({ headers, body: Buffer.from(text) }), status: statusCode }
  return new EndpointError('refused', `expected status 200, got ${statusCode}`, refusal)
}

function secretsIn(headers: Readonly<Record<string, string>>): readonly string[] {
  const { authorization = '', 'x-api-key': apiKey = '' } = headers
  return [authorization.replace(/^Bearer /, ''), apiKey].filter((secret) => secret !== '')
}

/** Some services compress answers even if the request forbids compression. */
async function undoCoding(
  bytes: Buffer,
  {
    coding,
    bytesMax,
    reserve,
  }: {
    readonly coding: string | readonly string[] | undefined
    readonly bytesMax: number
    readonly reserve: (bytes: number) => void
  },
): Promise<Buffer> {
  if (coding === undefined || coding === 'identity' || coding === '') return bytes
  const decode = CONTENT_CODINGS.get(String(coding).trim().toLowerCase())
  if (decode === undefined)
    throw new EndpointError(
      'bad_answer',
      `expected no content-encoding, got ${String(coding).slice(0, 40)}`,
    )
  try {
    const decoded = await decode(bytes, { maxOutputLength: bytesMax })
    reserve(decoded.length)
    return decoded
  } catch (error) {
    if (!isNetworkError(error)) throw error
    throw error.code === 'ERR_BUFFER_TOO_LARGE'
      ? new EndpointError('answer_too_large', `expected at most ${bytesMax} bytes, got more`)
      : new EndpointError(
          'bad_answer',
          `expected a body in the stated content-encoding (${error.code})`,
        )
  }
}

/** Reads the body. An error in the loop destroys the body, and this ends the call. */
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
    throw new EndpointError(
      'bad_answer',
      `expected JSON, got ${bytes.length} bytes of something else`,
    )
  return value
}

function tryJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    return undefined
  }
}

/** Errors of sockets, TLS and the HTTP parser have a code in capitals. Our own errors do not. */
function isNetworkError(error: unknown): error is Error & { readonly code: string } {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'string' &&
    /^[A-Z][A-Z0-9_]+$/.test(error.code)
  )
}

type EndpointErrorCode = 'unreachable' | 'timeout' | 'refused' | 'bad_answer' | 'answer_too_large'

/** A service's refusal, with its status and its message. */
export type EndpointRefusal = Refusal & { readonly status: number }

/**
 * A configured service gave no usable answer. `message` is for the operator's log. It contains no
 * key and no part of a request.
 */
export class EndpointError extends Error {
  override readonly name = 'EndpointError'
  readonly code: EndpointErrorCode
  /** Null unless `code` is `refused`. */
  readonly refusal: EndpointRefusal | null

  constructor(code: EndpointErrorCode, message: string, refusal: EndpointRefusal | null = null) {
    super(message)
    this.code = code
    this.refusal = refusal
  }
}

type FormFile = {
  readonly name: string
  readonly filename: string
  readonly mediaType: string
  readonly bytes: Uint8Array
}

/**
 * Encodes a `multipart/form-data` body (RFC 7578). Our code chooses the names; values may have any
 * content.
 */
export function writeForm(
  fields: Readonly<Record<string, string>>,
  { name, filename, mediaType, bytes }: FormFile,
): { readonly contentType: string; readonly body: Uint8Array } {
  // Random, so that no value can contain the boundary.
  const boundary = `form-${randomUUID()}`
  const texts = Object.entries(fields).map(
    ([field, value]) =>
      `--${boundary}\r\ncontent-disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`,
  )
  const head = `--${boundary}\r\ncontent-disposition: form-data; name="${name}"; filename="${filename}"\r\ncontent-type: ${mediaType}\r\n\r\n`
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: Buffer.concat([
      Buffer.from(texts.join('') + head),
      bytes,
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]),
  }
}
