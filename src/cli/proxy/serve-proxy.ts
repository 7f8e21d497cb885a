import { timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { encodeUtf8, sha256 } from '#attestation/bytes.ts'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, memberOf } from '#attestation/json/value.ts'
import { orNull } from '#attestation/or-null.ts'
import { CALL_DIALECTS, type CallDialect } from '#client/call-dialects.ts'
import { LAST_CALL_HEADER } from '#client/checked-fetch.ts'
import type { Affidavit } from '#client/connect.ts'
import { AffidavitError } from '#client/errors.ts'
import type { Proof } from '#client/proof.ts'
import { type CallerError, describeFault, LostCall, SAY_MADE } from './caller-errors.ts'
import type { OwnedSession, SessionAdmission } from './owned-session.ts'
import {
  BODY_LIMITS,
  createBodyReader,
  type RequestBody,
  type RequestLimits,
  RequestRefused,
} from './request-bodies.ts'

export type ProxiedCall = {
  /** The model in the request. Null if the request names no model. */
  readonly model: string | null
  /**
   * `checked`: every check passed. `refused`: a check failed, and the caller got an error. `error`:
   * no answer, because the gateway failed or is unreachable, or the request was not valid. `left`:
   * the caller left.
   */
  readonly verdict: 'checked' | 'refused' | 'error' | 'left'
  /** Code of a refusal, or code or status of an error. Otherwise null. */
  readonly detail: string | null
  /** True if the proxy has a session that does not belong to the caller's key. */
  readonly isOutside: boolean
  /** Null if the call was not checked. */
  readonly proof: Proof | null
  readonly durationMs: number
}

export type CheckingProxy = {
  /** `http://127.0.0.1:PORT/v1`, the base URL for clients. */
  readonly baseURL: string
  /** Accepts no more calls. Resolves when all running calls have ended. */
  close(): Promise<void>
}

/** Headers of the caller's request that are passed to the client library. */
const PASSED_HEADERS = [
  LAST_CALL_HEADER,
  DEMANDS_HEADER,
  ...Object.values(DIALECT_HEADERS).flat(),
  'authorization',
  'x-api-key',
  'content-type',
  'fine-tune-authorization',
  'idempotency-key',
  'x-request-id',
] as const

/** Headers of the gateway that are passed to the caller, in addition to the content type. */
const ANSWERED_HEADERS = [
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'x-request-id',
  'request-id',
] as const

/** Header of answers that the session of the proxy does not have. */
const SESSION_HEADER = 'affidavit-session'

/**
 * A whole answer is checked before its status is sent. Events of a stream are sent when they
 * arrive. The stream's end is sent only after all checks passed. A refused answer becomes an error
 * in its dialect's form, and the error names the check. Rejects if the port is taken. Every program
 * on loopback that knows the base URL can use the proxy, with the program's own key. Requests from
 * web pages, and requests for another host, are refused.
 */
export async function serveProxy(options: {
  readonly affidavit: Affidavit
  /** If left out, calls are made without a session. */
  readonly session?: OwnedSession
  /** 0 selects any free port. */
  readonly port: number
  /** The first segment of all paths, base64url. If left out, any program can use the proxy. */
  readonly token?: string
  readonly onCall: (call: ProxiedCall) => void
  /** Called for each checked call, with the caller's API key. */
  readonly onProof?: (proof: Proof, apiKey: string | null) => void
  /** How long `close` waits for calls that were sent, milliseconds. Default 30,000. */
  readonly drainMs?: number
  readonly bodyLimits?: RequestLimits
}): Promise<CheckingProxy> {
  const { affidavit, session = null, token = null, onCall, onProof = () => undefined } = options
  const readBody = createBodyReader(options.bodyLimits ?? BODY_LIMITS)
  const running = new Set<Promise<void>>()
  const stopping = new AbortController()
  const halting = new AbortController()
  const server = createServer((request, response) => {
    const call = answer(request, response, {
      affidavit,
      session,
      token,
      readBody,
      onCall,
      onProof,
      stop: stopping.signal,
      halt: halting.signal,
    }).catch(() => {
      // An unhandled rejection would end all other calls too.
      response.destroy()
    })
    running.add(call)
    void call.finally(() => running.delete(call))
  })
  server.on('upgrade', refuseUpgrade)
  await listen(server, options.port)
  const { port } = server.address() as AddressInfo
  return {
    baseURL: `http://127.0.0.1:${port}${token === null ? '' : `/${token}`}/v1`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      stopping.abort(new RequestRefused(503, 'stopping', 'the proxy stops'))
      const timer = setTimeout(
        () => halting.abort(new LostCall('stopping', `The proxy stops. ${SAY_MADE}`)),
        options.drainMs ?? DRAIN_MS,
      )
      await Promise.all(running)
      clearTimeout(timer)
      server.closeAllConnections()
      await closed
    },
  }
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** Codex asks for a WebSocket first. After a 426 it falls back to POST. */
function refuseUpgrade(_: IncomingMessage, socket: Duplex): void {
  // Node.js removes its own listener from this socket, and an unheard error would end the process.
  socket.on('error', () => undefined)
  const text = 'HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
  // A socket whose other side stays open would prevent the server from closing.
  socket.end(text, () => socket.destroy())
}

type Serving = {
  readonly affidavit: Affidavit
  readonly session: OwnedSession | null
  readonly token: string | null
  readonly readBody: ReturnType<typeof createBodyReader>
  readonly onCall: (call: ProxiedCall) => void
  readonly onProof: (proof: Proof, apiKey: string | null) => void
  /** Aborts when the proxy stops: a request that was not sent yet ends. */
  readonly stop: AbortSignal
  /** Aborts some time later: each call ends. */
  readonly halt: AbortSignal
}

/** Answers one request. Rejects if it cannot even answer with an error. */
async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { affidavit, session, token, readBody, onCall, onProof, stop, halt }: Serving,
): Promise<void> {
  const startedAtMs = performance.now()
  const left = new AbortController()
  response.once('close', () => left.abort(new Error('the caller left')))
  const signal = AbortSignal.any([left.signal, halt])
  let model: string | null = null
  let body: RequestBody | null = null
  let admission: SessionAdmission | null = null
  let isAnswered = false
  const given = { first: '', count: 0 }
  const end = (verdict: ProxiedCall['verdict'], more: Partial<ProxiedCall> = {}) => {
    const durationMs = performance.now() - startedAtMs
    const isOutside = admission?.isOutside ?? false
    onCall({ model, verdict, detail: null, isOutside, proof: null, durationMs, ...more })
  }
  const plain = plainPathOf(request, token)
  const { form, isCall } = kindOf(plain)
  const key = keyOf(request)
  try {
    checkLocal(request)
    const path = pathOf(request, plain)
    session?.recognize(key)
    if (path === HELLO_PATH) {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
      return
    }
    body = await readBody(request, AbortSignal.any([left.signal, stop]))
    stop.throwIfAborted()
    const { bytes } = body
    model = modelOf(bytes)
    if (session !== null && isCall) admission = await session.admit(key, signal)
    if (admission?.isOutside) response.setHeader(SESSION_HEADER, 'outside')
    const { fetch } = admission ?? affidavit
    const asked = await fetch(affidavit.baseURL + path, {
      method: request.method ?? 'GET',
      headers: headersOf(request),
      ...(bytes === null ? {} : { body: bytes }),
      signal,
    })
    isAnswered = true
    await pass(asked, response, { signal, given })
    if (!asked.ok) return end('error', { detail: `status ${asked.status}` })
    const proof = affidavit.proofs.of(asked)
    // Only calls have a proof: lists of models and counts of tokens do not.
    if (proof === undefined) return
    session?.accept(key)
    onProof(proof, key)
    end('checked', { proof })
  } catch (fault) {
    if (left.signal.aborted) return end('left')
    const callerError = describeFault(fault, { form, isCall, isAnswered })
    end(callerError.verdict, { detail: callerError.code })
    refuse(response, callerError, { form, given })
  } finally {
    body?.release()
    admission?.leave()
  }
}

const DRAIN_MS = 30_000

function checkLocal({ headers }: IncomingMessage): void {
  // A web page can make any host name resolve to this machine, so the host name is checked.
  const host = (headers.host ?? '').replace(/:\d+$/, '')
  const isOfPage = (headers['sec-fetch-site'] ?? 'none') !== 'none' || headers.origin !== undefined
  if (!['127.0.0.1', 'localhost', '[::1]'].includes(host) || isOfPage)
    throw new RequestRefused(
      403,
      'not_local',
      'expected a request to 127.0.0.1, and not from a web page',
    )
}

/** Paths below the gateway's base URL, by this proxy's path without `/v1`. */
const PATHS: ReadonlyMap<string, string> = new Map([
  ['/chat/completions', '/chat/completions'],
  ['/responses', '/responses'],
  ['/messages', '/anthropic/v1/messages'],
  ['/messages/count_tokens', '/anthropic/v1/messages/count_tokens'],
])
/** Claude Code asks here first, without a key. */
const HELLO_PATH = '/api/hello'
const MODELS_PATH = /^\/models(?:\/[^/?#]+)?$/

/**
 * Returns the path without its token, without `/v1` and without its query. Null if the request does
 * not have the token.
 */
function plainPathOf({ url = '/' }: IncomingMessage, token: string | null): string | null {
  let path = url.replace(/[?#].*$/, '')
  if (token !== null) {
    const [, segment = '', rest = ''] = /^\/([^/]*)(.*)$/.exec(path) ?? []
    if (!timingSafeEqual(digestOf(segment), digestOf(token))) return null
    path = rest
  }
  return path.replace(/^\/v1(?=\/)/, '')
}

function digestOf(text: string): Uint8Array {
  return sha256(encodeUtf8(text))
}

/** Requests that are neither calls nor counts get errors in the form of chat completions. */
function kindOf(plain: string | null): { readonly form: CallDialect; readonly isCall: boolean } {
  const path = PATHS.get(plain ?? '') ?? ''
  const [chat] = CALL_DIALECTS
  const form = CALL_DIALECTS.find((one) => [...one.paths, ...one.countPaths].includes(path)) ?? chat
  return { form, isCall: form.paths.includes(path) }
}

/**
 * Returns the path below the base URL of the gateway, or HELLO_PATH. `plain`: see plainPathOf.
 * Throws RequestRefused.
 */
function pathOf(request: IncomingMessage, plain: string | null): string {
  const { method = 'GET', headers } = request
  if (plain === null)
    throw new RequestRefused(
      404,
      'not_found',
      'expected the base URL that the proxy printed at its start, with its secret segment',
    )
  if (plain === HELLO_PATH && (method === 'HEAD' || method === 'GET')) return HELLO_PATH
  const isModels = MODELS_PATH.test(plain)
  const path = PATHS.get(plain) ?? (isModels ? plain : undefined)
  if (path === undefined)
    throw new RequestRefused(
      404,
      'not_found',
      `expected ${[...PATHS.keys()].join(', ')} or /models below /v1: answers of other paths ` +
        'cannot be checked',
    )
  if (method !== (isModels ? 'GET' : 'POST'))
    throw new RequestRefused(405, 'method_not_allowed', `expected another method than ${method}`)
  // For Anthropic's clients, which set this header, the list of models has another form.
  return isModels && headers['anthropic-version'] !== undefined ? `/anthropic/v1${path}` : path
}

function headersOf({ headers }: IncomingMessage): Headers {
  const passed = new Headers()
  for (const name of PASSED_HEADERS) {
    const value = headers[name]
    if (typeof value === 'string') passed.set(name, value)
  }
  return passed
}

/**
 * Returns the key that the gateway accepted for the call. Where the gateway reads both headers, it
 * demands the same key in both, and it ignores an empty `x-api-key`. For chat completions it reads
 * only `Authorization`.
 */
function keyOf({ headers }: IncomingMessage): string | null {
  const bearer = /^bearer\s+(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  const key = bearer ?? headers['x-api-key']
  return typeof key === 'string' && key !== '' ? key : null
}

/**
 * Returns the model for the log line. Has the limits of a request: JSON.parse would stop the whole
 * proxy for seconds on millions of empty arrays.
 */
function modelOf(body: Buffer | null): string | null {
  const request = orNull(() => parseStrictJson(body ?? new Uint8Array()), JsonError)
  const model = isJsonObject(request) ? memberOf(request, 'model') : null
  return typeof model === 'string' ? model : null
}

/** Rejects with the fault of a refused answer. */
async function pass(
  asked: Response,
  response: ServerResponse,
  { signal, given }: { readonly signal: AbortSignal; readonly given: Given },
): Promise<void> {
  const isStream = /^text\/event-stream\b/i.test(asked.headers.get('content-type') ?? '')
  const head = {
    'content-type': isStream ? 'text/event-stream; charset=utf-8' : 'application/json',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  }
  const more = ANSWERED_HEADERS.flatMap((name) => {
    const value = asked.headers.get(name)
    return value === null ? [] : [[name, value] as const]
  })
  const headers = { ...head, ...Object.fromEntries(more) }
  if (!isStream) {
    const bytes = Buffer.from(await asked.arrayBuffer())
    response.writeHead(asked.status, headers).end(bytes)
    return
  }
  if (asked.body === null) throw new AffidavitError('cut_stream', 'expected a stream')
  for await (const part of asked.body) {
    // The status is sent only with the first part, so that an earlier refusal has its own status.
    if (!response.headersSent) response.writeHead(asked.status, headers)
    countEvents(part, given)
    const isTaken = response.write(part)
    if (!isTaken) await drained(response, signal)
  }
  response.end()
}

type Given = { first: string; count: number }

/** Counts the events of a part. The client library passes on only whole events. */
function countEvents(part: Uint8Array, given: Given): void {
  const events = Buffer.from(part).toString().split('\n\n')
  const shown = events.filter((event) => /^(event|data):/m.test(event))
  if (given.count === 0) given.first = shown[0] ?? ''
  given.count += shown.length
}

/** Rejects if the caller left or the proxy stops. */
async function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  await new Promise<void>((resolve, reject) => {
    const end = () => {
      response.off('drain', onDrain)
      signal.removeEventListener('abort', onAbort)
    }
    const onDrain = () => {
      end()
      resolve()
    }
    const onAbort = () => {
      end()
      reject(signal.reason)
    }
    response.once('drain', onDrain)
    signal.addEventListener('abort', onAbort, { once: true })
  })
}

function refuse(
  response: ServerResponse,
  { verdict, headers, ...fault }: CallerError,
  { form, given }: { readonly form: CallDialect; readonly given: Given },
): void {
  if (response.headersSent) {
    response.end(form.errorEvents(fault, given))
    return
  }
  response.writeHead(fault.status, { 'content-type': 'application/json', ...headers })
  response.end(JSON.stringify(form.errorBody(fault)))
}
