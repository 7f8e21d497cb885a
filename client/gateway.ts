import { ByteBuffer } from '#attestation/byte-buffer.ts'

/** The type of `fetch` in browsers and Node. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

export type GatewayOptions = {
  /** URL without an API path, and without a slash at its end. */
  readonly url: string
  /** Null: no key is sent. */
  readonly apiKey: string | null
  readonly fetch: Fetch
  /** Time limit for one exchange, from the connection to the last byte. Null: no limit. */
  readonly timeoutMs: number | null
  /** Headers that are added to every call. */
  readonly headers?: Readonly<Record<string, string>>
}

export type GatewayCall = {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** Sent as JSON. */
  readonly body?: object
  /** Size limit of the answer. It applies to every status. */
  readonly bytesMax: number
  readonly signal?: AbortSignal | undefined
  /**
   * Milliseconds until the call is repeated. Null (the default): no repeat. `tried`: number of
   * exchanges so far.
   */
  readonly retryAfterMs?: (tried: number, outcome: GatewayAnswer | NoAnswer) => number | null
  /** Rejects with the signal's reason when the signal is aborted. */
  readonly pause?: (ms: number, signal: AbortSignal | undefined) => Promise<void>
}

/** The gateway's complete answer. Its content is not trusted. */
export type GatewayAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** There is no usable answer. `cause` is the error of `fetch`, or of reading the body. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
  readonly code: 'unreachable' | 'too_slow' | 'too_large' | 'redirected'
  /** HTTP status. Null without an answer. Browsers return 0 for a redirect. */
  readonly status: number | null

  constructor(
    code: NoAnswer['code'],
    message: string,
    fault: { readonly status?: number; readonly cause?: unknown } = {},
  ) {
    super(message, { cause: fault.cause })
    this.code = code
    this.status = fault.status ?? null
  }
}

/**
 * All clients of our own API use this function. It follows no redirects, so that no other server
 * receives a key. It returns answers with an error status too: errorWordsOf reads the error. Throws
 * NoAnswer, and the abort reason of `signal`.
 */
export async function callGateway(
  gateway: GatewayOptions,
  path: string,
  call: GatewayCall,
): Promise<GatewayAnswer> {
  const { retryAfterMs = () => null, pause: wait = delay, signal } = call
  for (let tried = 1; ; tried += 1) {
    const outcome = await exchange(gateway, path, call).catch((fault: unknown) => {
      signal?.throwIfAborted()
      if (fault instanceof NoAnswer) return fault
      throw fault
    })
    const pauseMs = retryAfterMs(tried, outcome)
    if (pauseMs !== null) await wait(pauseMs, signal)
    else if (outcome instanceof NoAnswer) throw outcome
    else return outcome
    signal?.throwIfAborted()
  }
}

async function exchange(
  { url, apiKey, fetch, timeoutMs, headers = {} }: GatewayOptions,
  path: string,
  { method = 'GET', body, bytesMax, signal }: GatewayCall,
): Promise<GatewayAnswer> {
  const timeout = timeoutMs === null ? null : AbortSignal.timeout(timeoutMs)
  const signals = [timeout, signal].filter((one) => one instanceof AbortSignal)
  try {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        accept: 'application/json',
        ...headers,
        ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      redirect: 'manual',
      signal: AbortSignal.any(signals),
    })
    const { status } = response
    if (isRedirect(response)) {
      await response.body?.cancel()
      throw new NoAnswer('redirected', 'expected no redirection', { status })
    }
    const bytes = await readAtMost(response, bytesMax)
    if (bytes === null)
      throw new NoAnswer('too_large', `expected an answer of at most ${bytesMax} bytes`, { status })
    return { status, headers: response.headers, bytes }
  } catch (cause) {
    if (cause instanceof NoAnswer) throw cause
    const reason = systemReasonOf(cause)
    if (timeout?.aborted || reason === 'UND_ERR_CONNECT_TIMEOUT')
      throw new NoAnswer('too_slow', `expected a complete answer within ${timeoutMs} ms`, { cause })
    throw new NoAnswer('unreachable', `no answer (${reason})`, { cause })
  }
}

/** Returns the system's code, such as ECONNREFUSED, or the error message. */
export function systemReasonOf(fault: unknown): string {
  const cause = fault instanceof Error && fault.cause instanceof Error ? fault.cause : fault
  if (!(cause instanceof Error)) return 'unknown fault'
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.message
}

type GatewayErrorWords = { readonly message: string; readonly code: string | null }

/** Reads `{"error": {"message", "code"}}`. Null for any other body. */
export function errorWordsOf(bytes: Uint8Array): GatewayErrorWords | null {
  try {
    const { error } = JSON.parse(new TextDecoder().decode(bytes))
    const code = error?.code ?? error?.type
    if (typeof error?.message !== 'string') return null
    return { message: error.message, code: typeof code === 'string' ? code : null }
  } catch {
    return null
  }
}

/**
 * Returns true if a key may be sent to `url`: the connection is encrypted, or stays on this
 * computer.
 */
export function isSafeForKey({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname)
}

/** Thrown instead of sending a key to another computer without encryption. */
export class UnsafeKey extends Error {
  override readonly name = 'UnsafeKey'
}

/** Throws UnsafeKey. */
export function checkKeySafety(url: URL, apiKey: string | null): void {
  if (apiKey !== null && !isSafeForKey(url))
    throw new UnsafeKey(
      'expected https for a URL on another machine: others could read the API key',
    )
}

/**
 * Pause before a repeat, milliseconds. In this time, the connection pool detects a closed
 * connection, so that the repeat opens a new one.
 */
export const RECONNECT_PAUSE_MS = 100

/**
 * Repeats a read once if `isBroken` returns true (default: after any rejection). After a restart of
 * the gateway, our pool still has the old connection, so the first request fails. Use this only for
 * reads without side effects: a broken call for a completion may have been processed.
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
    await delay(RECONNECT_PAUSE_MS, undefined)
    return await read()
  }
}

/** In browsers, the response to a redirect has status 0. */
export function isRedirect({ status, type }: Response): boolean {
  return type === 'opaqueredirect' || (status >= 300 && status < 400)
}

/** Null if the body has more than `bytesMax` bytes. Rejects when the stream fails. */
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

/** Rejects with the signal's reason when the signal is aborted. */
export async function delay(ms: number, signal: AbortSignal | undefined): Promise<void> {
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

/** Waits for `running`. An abort ends only this wait: `running` continues for other callers. */
export async function leavable<Value>(
  running: Promise<Value>,
  signal: AbortSignal,
): Promise<Value> {
  let leave: () => void = () => undefined
  const left = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason)
    if (signal.aborted) leave()
    else signal.addEventListener('abort', leave, { once: true })
  })
  try {
    return await Promise.race([running, left])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}
