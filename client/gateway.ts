import { ByteBuffer } from '../attestation/byte-buffer.ts'

/** A `fetch` as browsers and Node have it. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

/** Where the gateway is, and how it is reached. */
export type GatewayOptions = {
  /** Without a path of the API and without a slash at its end. */
  readonly url: string
  /** Null: none is sent. */
  readonly apiKey: string | null
  readonly fetch: Fetch
  /** Longest that one exchange may take, from connect to the last byte; null: no limit. */
  readonly timeoutMs: number | null
  /** Sent with each call, beside those of the call. */
  readonly headers?: Readonly<Record<string, string>>
}

/** One call of our own API. */
export type GatewayCall = {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** Sent as JSON. */
  readonly body?: object
  /** Limits the answer, for any status. */
  readonly bytesMax: number
  readonly signal?: AbortSignal | undefined
  /**
   * Milliseconds until the call is made again; null: it is not. Left out: no call is made twice.
   * `tried` counts the exchanges so far.
   */
  readonly retryAfterMs?: (tried: number, outcome: GatewayAnswer | NoAnswer) => number | null
  /** Waits between two exchanges. Rejects with the reason when the signal is aborted meanwhile. */
  readonly pause?: (ms: number, signal: AbortSignal | undefined) => Promise<void>
}

/** What the gateway answered, read whole. Nothing in it is trusted. */
export type GatewayAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** No answer that can be used. `cause` is what `fetch`, or the body, rejected with. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
  readonly code: 'unreachable' | 'too_slow' | 'too_large' | 'redirected'
  /** HTTP status; null when none came. A browser hides that of a redirection, and gives 0. */
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
 * Calls `path` of the gateway: the one client of our own API, in pages, audits, the command line,
 * node agents and the client of callers. Redirections are not followed, so that no key goes
 * elsewhere. An answer with an error status is one too: errorWordsOf reads it. Throws NoAnswer, and
 * what `signal` was aborted with.
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

/** Why `fetch` failed: the system's code, such as ECONNREFUSED, where there is one, else words. */
export function systemReasonOf(fault: unknown): string {
  const cause = fault instanceof Error && fault.cause instanceof Error ? fault.cause : fault
  if (!(cause instanceof Error)) return 'unknown fault'
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.message
}

/** What an answer says in the error envelope of our API. */
export type GatewayErrorWords = { readonly message: string; readonly code: string | null }

/** Gives the message of the error envelope, `{"error": {"message", "code"}}`, and its code. */
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

/** Whether a key may be sent to `url`: encrypted, or to this machine. */
export function isSafeForKey({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname)
}

/** A key would leave this machine unencrypted. */
export class UnsafeKey extends Error {
  override readonly name = 'UnsafeKey'
}

/** Throws UnsafeKey when there is a key that may not be sent to `url`. */
export function checkKeySafety(url: URL, apiKey: string | null): void {
  if (apiKey !== null && !isSafeForKey(url))
    throw new UnsafeKey(
      'expected https for a URL on another machine: others could read the API key',
    )
}

/**
 * How long a pool of connections has to notice which of them ended, milliseconds: then the next
 * read takes a new one.
 */
export const RECONNECT_PAUSE_MS = 100

/**
 * Makes a read, and once more when its connection broke (`isBroken`; left out: for any rejection).
 * A gateway that was restarted has closed the connections that are kept here, and the next request
 * on one fails, though the gateway is there. Only for reads without effect: a call that makes a
 * completion may have been made.
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

/** Rejects with the signal's reason when it is aborted meanwhile. */
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
