import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { statusOfType } from '#attestation/dialects/error-forms.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { CALL_DIALECTS, type CallDialect, type CallerFault } from '#client/call-dialects.ts'
import { LAST_CALL_HEADER } from '#client/checked-fetch.ts'
import type { Affidavit } from '#client/connect.ts'
import { AffidavitError, messageOf } from '#client/errors.ts'
import { type Fetch, leavable } from '#client/gateway.ts'
import type { Proof } from '#client/proof.ts'
import type { CallSession } from '#client/session.ts'
import { CONTENT_CODINGS, type UndoCoding } from '../../runtime/codings.ts'

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

/** Bytes, also of a body that was decompressed. The gateway's own limit is smaller. */
const REQUEST_BYTES_MAX = 64 * 1024 * 1024

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

/**
 * A whole answer is checked before its status is sent. Events of a stream are sent when they
 * arrive. The stream's end is sent only after all checks passed. A refused answer becomes an error
 * in its dialect's form, and the error names the check. Rejects if the port is taken. Every program
 * on loopback can use the proxy, with the program's own key. Requests from web pages, and requests
 * for another host, are refused.
 */
export async function serveProxy(options: {
  readonly affidavit: Affidavit
  /** If left out, calls are made without a session. */
  readonly session?: CallSession
  /** 0 selects any free port. */
  readonly port: number
  readonly onCall: (call: ProxiedCall) => void
  /** Called for each request, with the caller's API key. */
  readonly onRequest?: (apiKey: string | null) => void
  /** Called for each checked call, with the caller's API key. */
  readonly onProof?: (proof: Proof, apiKey: string | null) => void
  /** How long `close` waits for calls that were sent, milliseconds. Default 30,000. */
  readonly drainMs?: number
}): Promise<CheckingProxy> {
  const { affidavit, onCall, onRequest = () => undefined, onProof = () => undefined } = options
  const { fetch } = options.session ?? affidavit
  const running = new Set<Promise<void>>()
  const stopping = new AbortController()
  const halting = new AbortController()
  const server = createServer((request, response) => {
    const call = answer(request, response, {
      affidavit,
      fetch,
      onCall,
      onRequest,
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
    baseURL: `http://127.0.0.1:${port}/v1`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      stopping.abort(new Unanswered(503, 'stopping', 'the proxy stops'))
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
  readonly fetch: Fetch
  readonly onCall: (call: ProxiedCall) => void
  readonly onRequest: (apiKey: string | null) => void
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
  { affidavit, fetch, onCall, onRequest, onProof, stop, halt }: Serving,
): Promise<void> {
  const startedAtMs = performance.now()
  const left = new AbortController()
  response.once('close', () => left.abort(new Error('the caller left')))
  const signal = AbortSignal.any([left.signal, halt])
  let model: string | null = null
  const given = { first: '', count: 0 }
  const end = (verdict: ProxiedCall['verdict'], more: Partial<ProxiedCall> = {}) => {
    const durationMs = performance.now() - startedAtMs
    onCall({ model, verdict, detail: null, proof: null, durationMs, ...more })
  }
  const form = formOf(request)
  try {
    checkLocal(request)
    onRequest(keyOf(request))
    const path = pathOf(request)
    if (path === HELLO_PATH) {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
      return
    }
    const body = await leavable(readRequest(request), AbortSignal.any([left.signal, stop]))
    stop.throwIfAborted()
    if (form !== null) model = modelOf(body)
    const asked = await fetch(affidavit.baseURL + path, {
      method: request.method ?? 'GET',
      headers: headersOf(request),
      ...(body === null ? {} : { body }),
      signal,
    })
    await pass(asked, response, { signal, given })
    if (!asked.ok) return end('error', { detail: `status ${asked.status}` })
    const proof = affidavit.proofs.of(asked)
    // Only calls have a proof: lists of models and counts of tokens do not.
    if (proof === undefined) return
    onProof(proof, keyOf(request))
    end('checked', { proof })
  } catch (fault) {
    if (left.signal.aborted) return end('left')
    const callerError = describe(fault, form ?? CHAT)
    end(callerError.isFinal ? 'refused' : 'error', { detail: callerError.code })
    refuse(response, callerError, { form: form ?? CHAT, given })
  }
}

/** The proxy itself refuses a request, with this status. */
class Unanswered extends Error {
  override readonly name = 'Unanswered'
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

/** The call was made and costs, but its caller gets no answer. */
export class LostCall extends Error {
  override readonly name = 'LostCall'
  readonly code: 'not_kept' | 'stopping'

  constructor(code: 'not_kept' | 'stopping', message: string, options: ErrorOptions = {}) {
    super(message, options)
    this.code = code
  }
}

export const SAY_MADE = 'The call was made: do not repeat it'
const DRAIN_MS = 30_000

function checkLocal({ headers }: IncomingMessage): void {
  // A web page can make any host name resolve to this machine, so the host name is checked.
  const host = (headers.host ?? '').replace(/:\d+$/, '')
  const isOfPage = (headers['sec-fetch-site'] ?? 'none') !== 'none' || headers.origin !== undefined
  if (!['127.0.0.1', 'localhost', '[::1]'].includes(host) || isOfPage)
    throw new Unanswered(
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

/** Returns the path without `/v1` and without its query. */
function plainPathOf({ url = '/' }: IncomingMessage): string {
  return url.replace(/[?#].*$/, '').replace(/^\/v1(?=\/)/, '')
}

/** Null if the request is neither a call nor a count of tokens. */
function formOf(request: IncomingMessage): CallDialect | null {
  const path = PATHS.get(plainPathOf(request))
  if (path === undefined) return null
  return CALL_DIALECTS.find((one) => [...one.paths, ...one.countPaths].includes(path)) ?? null
}

/** Requests that are not calls get errors in the form of chat completions. */
const [CHAT] = CALL_DIALECTS

/** Returns the path below the base URL of the gateway, or HELLO_PATH. Throws Unanswered. */
function pathOf(request: IncomingMessage): string {
  const { method = 'GET', headers } = request
  const plain = plainPathOf(request)
  if (plain === HELLO_PATH && (method === 'HEAD' || method === 'GET')) return HELLO_PATH
  const isModels = MODELS_PATH.test(plain)
  const path = PATHS.get(plain) ?? (isModels ? plain : undefined)
  if (path === undefined)
    throw new Unanswered(
      404,
      'not_found',
      `expected ${[...PATHS.keys()].join(', ')} or /models below /v1: answers of other paths ` +
        'cannot be checked',
    )
  if (method !== (isModels ? 'GET' : 'POST'))
    throw new Unanswered(405, 'method_not_allowed', `expected another method than ${method}`)
  // For Anthropic's clients, which set this header, the list of models has another form.
  return isModels && headers['anthropic-version'] !== undefined ? `/anthropic/v1${path}` : path
}

async function readRequest(request: IncomingMessage): Promise<Buffer<ArrayBuffer> | null> {
  if (request.method !== 'POST') return null
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length
    // The rest of a too large body is read and dropped, because a client reads no answer while it
    // sends.
    if (bytes > REQUEST_BYTES_MAX) parts.length = 0
    else parts.push(part)
  }
  if (bytes > REQUEST_BYTES_MAX) throw tooLarge()
  return decodeBody(Buffer.concat(parts), request.headers['content-encoding'])
}

function tooLarge(): Unanswered {
  return new Unanswered(413, 'payload_too_large', `expected at most ${REQUEST_BYTES_MAX} bytes`)
}

const CODINGS = new Map<string, UndoCoding>(CONTENT_CODINGS)
// The package runs on Node.js 20 too, which has no zstd.
if (Object.hasOwn(zlib, 'zstdDecompress'))
  CODINGS.set('zstd', promisify<Buffer, object, Buffer<ArrayBuffer>>(zlib.zstdDecompress))
const CODING_NAMES = [...CODINGS.keys()].join(', ')

/** Undoes the coding of a body, since the gateway hashes and reads plain bytes. */
async function decodeBody(
  bytes: Buffer<ArrayBuffer>,
  stated = 'identity',
): Promise<Buffer<ArrayBuffer>> {
  const coding = stated.trim().toLowerCase()
  if (coding === 'identity' || coding === '') return bytes
  const decode = CODINGS.get(coding.replace(/^x-(?=gzip$)/, ''))
  if (decode === undefined)
    throw new Unanswered(
      415,
      'unsupported_media_type',
      `expected content-encoding ${CODING_NAMES} or none, got ${stated.slice(0, 100)}`,
    )
  try {
    return await decode(bytes, { maxOutputLength: REQUEST_BYTES_MAX })
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge()
    throw new Unanswered(
      400,
      'invalid_request',
      `expected a body in ${coding}: ${messageOf(fault)}`,
    )
  }
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

/** Returns the model for the log line. The client library itself parses the body strictly. */
function modelOf(body: Buffer | null): string | null {
  try {
    const { model } = JSON.parse(String(body))
    return typeof model === 'string' ? model : null
  } catch {
    return null
  }
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

type CallerError = CallerFault & {
  /** True if a check failed. A retry would allow the gateway to choose among answers. */
  readonly isFinal: boolean
}

function refuse(
  response: ServerResponse,
  { isFinal, ...fault }: CallerError,
  { form, given }: { readonly form: CallDialect; readonly given: Given },
): void {
  if (response.headersSent) {
    response.end(form.errorEvents(fault, given))
    return
  }
  response.writeHead(fault.status, {
    'content-type': 'application/json',
    // RFC 9110, section 12.5.3.
    ...(fault.status === 415 ? { 'accept-encoding': CODING_NAMES } : {}),
    ...(isFinal ? { 'x-should-retry': 'false' } : {}),
  })
  response.end(JSON.stringify(form.errorBody(fault)))
}

function describe(fault: unknown, form: CallDialect): CallerError {
  const callerError = (
    status: number,
    code: string,
    message: string,
    isFinal = false,
  ): CallerError => {
    const type = status < 500 && !isFinal ? 'invalid_request_error' : 'affidavit'
    return { status, isFinal, message, type, code }
  }
  if (fault instanceof Unanswered) return callerError(fault.status, fault.code, fault.message)
  if (fault instanceof LostCall)
    return callerError(form.refusedStatus, fault.code, fault.message, true)
  if (!(fault instanceof AffidavitError))
    return callerError(502, 'unreachable', `the gateway cannot be reached: ${messageOf(fault)}`)
  const { code, message, checks } = fault
  if (code === 'error_in_answer') return statedError(fault, form)
  if (code === 'invalid_request' || code === 'unsupported_call')
    return callerError(400, code, message)
  if (fault.status === undefined) return callerError(502, code, message)
  if (code === 'no_attested_provider') return callerError(form.refusedStatus, code, message, true)
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  const check = failed === undefined ? '' : ` at the check "${failed.name}"`
  const words = `Affidavit refused the answer${check}: ${message}`
  return callerError(form.refusedStatus, code, words, true)
}

/** The error that the gateway stated in the place of an answer, in the form of the call's API. */
function statedError({ cause, message }: AffidavitError, form: CallDialect): CallerError {
  const stated = isJsonObject(cause as Json | undefined) ? (cause as JsonObject) : {}
  const textIn = (name: string) => (typeof stated[name] === 'string' ? stated[name] : null)
  const type = textIn('type') ?? 'affidavit'
  const code = textIn('code') ?? 'error_in_answer'
  const status = form.statusOf({ status: statusOfType(type) ?? 502, code })
  const param = textIn('param')
  return { status, type, code, param, message: textIn('message') ?? message, isFinal: true }
}
