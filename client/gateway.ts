import { ByteBuffer } from '../attestation/byte-buffer.ts'
import { JsonError } from '../attestation/json/json-error.ts'
import { parseExactJson } from '../attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../attestation/json/value.ts'
import { AffidavitError, reasonOf, shown } from './errors.ts'

/** A `fetch` as browsers and Node have it. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

/** Where the gateway is, and how it is reached. */
export type GatewayOptions = {
  /** Without a path of the API and without a slash at its end. */
  readonly url: string
  readonly apiKey: string | null
  readonly fetch: Fetch
  readonly timeoutMs: number
}

/** Lists of notaries, and documents with their boot configuration: the default. Bytes. */
const REPLY_BYTES_MAX = 4 * 1024 * 1024

/** What the gateway answered: its body as JSON, read exactly, and the text of it. */
export type GatewayReply = { readonly json: JsonObject; readonly text: string }

/**
 * Asks the gateway for `path`, and once more when the connection breaks; `bytesMax` bounds the
 * reply. Throws AffidavitError `unreachable`,
 * `gateway_error` (with the status), `redirected`, `invalid_reply`; and what `signal` was aborted
 * with.
 */
export async function askGateway(
  { url, apiKey, fetch, timeoutMs }: GatewayOptions,
  path: string,
  {
    withKey = false,
    bytesMax = REPLY_BYTES_MAX,
    signal,
  }: {
    readonly withKey?: boolean
    readonly bytesMax?: number
    readonly signal?: AbortSignal
  } = {},
): Promise<GatewayReply> {
  const timeout = AbortSignal.timeout(timeoutMs)
  const init: RequestInit = {
    headers: {
      accept: 'application/json',
      ...(withKey && apiKey !== null ? { authorization: `Bearer ${apiKey}` } : {}),
    },
    redirect: 'manual',
    signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
  }
  const read = async () => {
    const response = await sendAgain(`${url}${path}`, { fetch, init, path, signal })
    if (isRedirect(response))
      throw new AffidavitError('redirected', `${path}: expected no redirection`)
    return { response, bytes: await readBody(response, { path, bytesMax, signal }) }
  }
  const { response, bytes } = await readTwice(read, {
    signal: init.signal ?? undefined,
    isBroken: (fault) => fault instanceof AffidavitError && fault.code === 'unreachable',
  })
  if (!response.ok)
    throw new AffidavitError(
      'gateway_error',
      `${path}: status ${response.status}: ${messageOf(bytes)}`,
    )
  return { json: readReply(bytes, path), text: new TextDecoder().decode(bytes) }
}

/**
 * How long the pool has to notice which of its connections ended, milliseconds: then the second
 * read takes a new one.
 */
const RECONNECT_PAUSE_MS = 100

/**
 * Makes a read, and once more when its connection broke (`isBroken`; left out: whatever it rejects
 * with). A gateway that was restarted has closed the connections that are kept here, and the next
 * request on one fails, though the gateway is there. Only for reads without effect: a call that
 * makes a completion may have been made.
 */
export async function readTwice<Type>(
  read: () => Promise<Type>,
  {
    signal,
    isBroken = () => true,
  }: {
    readonly signal: AbortSignal | undefined
    readonly isBroken?: (fault: unknown) => boolean
  },
): Promise<Type> {
  try {
    return await read()
  } catch (fault) {
    if (signal?.aborted || !isBroken(fault)) throw fault
    await pause(RECONNECT_PAUSE_MS, undefined)
    return await read()
  }
}

/** A browser hides what a redirection says: its status is then 0. */
export function isRedirect({ status, type }: Response): boolean {
  return type === 'opaqueredirect' || (status >= 300 && status < 400)
}

/** Gives a body of at most `bytesMax` bytes, null when it is longer. Rejects as its stream does. */
export async function readAtMost(
  response: Response,
  bytesMax: number,
): Promise<Uint8Array<ArrayBuffer> | null> {
  if (response.body === null) return new Uint8Array()
  const reader = response.body.getReader()
  const bytes = new ByteBuffer()
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return new Uint8Array(bytes.take())
    if (bytes.length + value.length > bytesMax) {
      void reader.cancel().catch(() => undefined)
      return null
    }
    bytes.append(value)
  }
}

/** A gateway makes so many documents a second, for all who ask. */
const OVERLOADED: ReadonlySet<number> = new Set([429, 503])
const TRIES_MAX = 4
const TRY_PAUSE_MS = 500

async function sendAgain(url: string, so: Parameters<typeof send>[1]): Promise<Response> {
  for (let tries = 1; ; tries += 1) {
    const response = await send(url, so)
    if (!OVERLOADED.has(response.status) || tries === TRIES_MAX) return response
    await response.body?.cancel().catch(() => undefined)
    await pause(TRY_PAUSE_MS * tries, so.init.signal ?? undefined)
  }
}

/** Rejects with the signal's reason when it is aborted meanwhile. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }, ms)
    if (signal?.aborted) abort()
    else signal?.addEventListener('abort', abort, { once: true })
  })
}

/** A question to the gateway; `signal` is its caller's, who may leave. */
type Asked = { readonly path: string; readonly signal: AbortSignal | undefined }

async function send(
  url: string,
  so: Asked & { readonly fetch: Fetch; readonly init: RequestInit },
): Promise<Response> {
  try {
    return await so.fetch(url, so.init)
  } catch (cause) {
    throw unreachable(so, cause)
  }
}

async function readBody(
  response: Response,
  so: Asked & { readonly bytesMax: number },
): Promise<Uint8Array> {
  let bytes: Uint8Array | null
  try {
    bytes = await readAtMost(response, so.bytesMax)
  } catch (cause) {
    throw unreachable(so, cause)
  }
  if (bytes === null)
    throw new AffidavitError('invalid_reply', `${so.path}: over ${so.bytesMax} bytes`)
  return bytes
}

function readReply(bytes: Uint8Array, path: string): JsonObject {
  let json: Json
  try {
    json = parseExactJson(bytes)
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause
    throw new AffidavitError('invalid_reply', `${path}: ${cause.message}`, { cause })
  }
  if (isJsonObject(json)) return json
  throw new AffidavitError('invalid_reply', `${path}: expected a JSON object`)
}

/** What an error answer says, as far as it is one of ours. */
function messageOf(bytes: Uint8Array): string {
  try {
    const json = parseExactJson(bytes)
    const error = isJsonObject(json) ? memberOf(json, 'error') : undefined
    const message = isJsonObject(error) ? memberOf(error, 'message') : undefined
    return typeof message === 'string' ? shown(message) : 'no message'
  } catch {
    return 'no message'
  }
}

/** Throws in place of it what the caller left with, when that is the cause. */
function unreachable({ path, signal }: Asked, cause: unknown): AffidavitError {
  signal?.throwIfAborted()
  return new AffidavitError('unreachable', `${path}: ${reasonOf(cause)}`, { cause })
}
