import { encodeHex, encodeUtf8, sha256 } from '../attestation/bytes.ts'
import type { KeptAnswer } from '../attestation/compare-exchange.ts'
import {
  type CredentialDemand,
  DEMANDS_MEMBER,
  type Demands,
  demandsOf,
  digestCredential,
} from '../attestation/demands.ts'
import { FormatError } from '../attestation/errors.ts'
import { canonicalizeJson } from '../attestation/json/canonical.ts'
import { JsonError } from '../attestation/json/json-error.ts'
import { parseExactJson, parseStrictJson } from '../attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../attestation/json/value.ts'
import { createAnswerSize } from './answer-size.ts'
import { checkAnswer, describeGatewayError, type SentCall } from './check-answer.ts'
import { checkedStream } from './checked-stream.ts'
import { type EncryptionTarget, isKeyConfigProblem, sealCall } from './encryption.ts'
import { passError } from './error-reply.ts'
import { AffidavitError } from './errors.ts'
import { type Fetch, isRedirect, readAtMost, readTwice } from './gateway.ts'
import type { Notaries } from './notaries.ts'
import { createProof, type Proof } from './proof.ts'

/** The options of createCheckedFetch. */
export type CheckedFetchOptions = {
  /** URL for verified calls: the gateway's URL with `/v1/verified`. */
  readonly baseURL: string
  readonly fetch: Fetch
  readonly notaries: Notaries
  /** True if calls are encrypted to an enclave. */
  readonly encrypt: boolean
  /** True if a stream is passed on only after a check of all its chunks. */
  readonly hold: boolean
  /** Largest answer, bytes. */
  readonly bytesMax: number
  /**
   * Receives each proof before the end of its answer is passed on. If it throws, the answer is
   * refused.
   */
  readonly keep: (proof: Proof) => void | Promise<void>
  /** Receives each proof with its answer, before the end of the answer is passed on. */
  readonly bind: (answer: Response, proof: Proof) => void
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Returns a `fetch` for `POST {baseURL}/chat/completions`, which checks the answers, and for `GET
 * {baseURL}/models`. It refuses other requests with `unsupported_call`, so that no answer passes
 * unchecked.
 *
 * It adds to the body a nonce, and states which credential the enclave must use: the credential of
 * `Fine-Tune-Authorization`, otherwise the operator's. Demands that the body already has are kept.
 *
 * An answer with an error status is not signed, and only its error is passed on. Reading the body
 * of a refused answer rejects with AffidavitError, for a stream before its end. Thus a client that
 * repeats calls after a failed connection does not repeat a refused call.
 */
export function createCheckedFetch(options: CheckedFetchOptions): Fetch {
  const { baseURL, fetch } = options
  const sentBefore = createSentCalls()
  return async (input, init = {}) => {
    const request = new Request(input, { ...init, ...HALF_DUPLEX })
    const { url, method, headers } = request
    switch (routeOf(url, { method, baseURL })) {
      case 'models':
        // This read has no side effects, so it may be repeated.
        return await readTwice(() => fetch(input, { ...init, redirect: 'error' }), {
          signal: init.signal ?? request.signal,
        })
      case 'completion': {
        const credential = readCredential(headers.get('fine-tune-authorization'))
        if (credential instanceof AffidavitError) return refuse(new Response(), credential)
        const { body, call } = sentBefore.prepare(new Uint8Array(await request.arrayBuffer()), {
          key: headers.get('idempotency-key'),
          credential,
        })
        // The header has the length of the old body. fetch sets the new length.
        headers.delete('content-length')
        const sent: RequestInit = { ...init, method, headers, body, redirect: 'manual' }
        const signal = init.signal ?? request.signal
        const send = (more: RequestInit) => fetch(url, { ...sent, signal, ...more })
        const encrypted = { ...call, isEncrypted: true }
        try {
          if (!options.encrypt) {
            await leavable(options.notaries.ensure(), signal)
            return await checkResponse(await send({}), { call, options, signal })
          }
          const response = await sendSealed(send, { body, headers, credential, signal, options })
          return await checkResponse(response, { call: encrypted, options, signal })
        } catch (fault) {
          // A repeat does not help, so this error appears when the answer is read, like all other
          // refusals.
          if (fault instanceof AffidavitError && fault.status !== undefined)
            return refuse(new Response(), fault)
          throw fault
        }
      }
    }
  }
}

/**
 * Encrypts a call, sends it, and decrypts the answer as it arrives. If the enclave no longer has
 * the key, it did not process the call. The call is then sent once more, with the key of another
 * enclave if possible. If the gateway refuses the second attempt too, the caller's client receives
 * 503 and tries again later.
 */
async function sendSealed(
  send: (more: RequestInit) => Promise<Response>,
  parts: {
    readonly body: Uint8Array
    readonly headers: Headers
    readonly credential: string | null
    readonly signal: AbortSignal
    readonly options: Pick<CheckedFetchOptions, 'notaries' | 'bytesMax'>
  },
): Promise<Response> {
  const { signal, options } = parts
  let gone: string | null = null
  for (;;) {
    const target: EncryptionTarget = await leavable(
      options.notaries.encryptionTarget({ gone }),
      signal,
    )
    const sealed = await sealCall({ target, body: parts.body, credential: parts.credential })
    // This enclave's release may have been revoked since the key was chosen.
    if (!options.notaries.isExpected(target.notary)) continue
    const headers = new Headers(parts.headers)
    for (const [name, value] of Object.entries(sealed.headers)) headers.set(name, value)
    const response = await send({ headers, body: sealed.body })
    if (await isKeyConfigProblem(response)) {
      if (gone !== null) return retryLater(response)
      void response.body?.cancel().catch(() => undefined)
      gone = target.notary
      continue
    }
    if (isRedirect(response)) return response
    return await sealed.open(response, options)
  }
}

/**
 * Replaces status 422 (a repeat does not help) by 503, after which the official SDKs repeat the
 * call.
 */
function retryLater(response: Response): Response {
  const headers = new Headers(response.headers)
  headers.set('retry-after', '1')
  return new Response(response.body, { status: 503, headers })
}

/**
 * Returns null without a credential, and an AffidavitError for a credential that the enclave could
 * not use.
 */
function readCredential(header: string | null): string | null | AffidavitError {
  if (header === null) return null
  const credential = header.replace(/^bearer(?:\s+|$)/i, '').trim()
  if (/^[\x21-\x7e]+$/.test(credential)) return credential
  return new AffidavitError(
    'invalid_request',
    "expected Fine-Tune-Authorization to be 'Bearer', a space and a credential of printable ASCII",
  )
}

/**
 * Waits for shared work. Rejects when this caller aborts; the work continues for the other callers.
 */
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

/** Some engines require this member for streamed bodies, but not all type definitions have it. */
const HALF_DUPLEX = { duplex: 'half' } as RequestInit

function routeOf(
  url: string,
  { method, baseURL }: { readonly method: string; readonly baseURL: string },
): 'completion' | 'models' {
  const path = url.startsWith(`${baseURL}/`) ? url.slice(baseURL.length) : null
  if (method === 'POST' && path === '/chat/completions') return 'completion'
  if (method === 'GET' && path !== null && /^\/models(\/[^/?#]+)?$/.test(path)) return 'models'
  throw new AffidavitError(
    'unsupported_call',
    `expected POST ${baseURL}/chat/completions, got ${method} ${url}: nothing else has a proof`,
  )
}

/** Maximum number of Idempotency-Keys whose nonces are kept for repeated calls. */
const KEYED_CALLS_MAX = 1_000
const NONCE_BYTES = 32

type PreparedCall = { readonly body: Uint8Array<ArrayBuffer>; readonly call: SentCall }

/** Assigns a nonce to each call. Calls with the same Idempotency-Key get the same nonce. */
function createSentCalls() {
  const keyed = new Map<string, { readonly nonce: string; sends: number }>()

  function prepare(
    body: Uint8Array,
    { key, credential }: { readonly key: string | null; readonly credential: string | null },
  ): PreparedCall {
    const request = readRequest(body)
    const own = readDemands(request)
    const known = own.nonce === undefined ? nonceFor(key, body) : { nonce: own.nonce, sends: null }
    const { nonce, sends } = known
    const demand =
      credential === null ? 'operator' : { sha256: digestCredential(nonce, credential) }
    const demands = { ...own, nonce, credential: own.credential ?? demand }
    const isTheirs = memberOf(request, DEMANDS_MEMBER) !== undefined
    const sent = isTheirs ? replaceDemands(request, demands) : addDemands(body, demands)
    return {
      body: sent,
      call: {
        request: readRequest(sent),
        sends,
        credential: demands.credential,
        isIdempotent: key !== null,
        isEncrypted: false,
      },
    }
  }

  function nonceFor(key: string | null, body: Uint8Array): { nonce: string; sends: number } {
    if (key === null) return { nonce: randomNonce(), sends: 1 }
    const name = `${encodeHex(sha256(body))} ${key}`
    const known = keyed.get(name) ?? { nonce: randomNonce(), sends: 0 }
    known.sends += 1
    keyed.delete(name)
    keyed.set(name, known)
    for (const oldest of keyed.keys()) {
      if (keyed.size <= KEYED_CALLS_MAX) break
      keyed.delete(oldest)
    }
    return { nonce: known.nonce, sends: known.sends }
  }

  return { prepare }
}

function randomNonce(): string {
  return encodeHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
}

function readRequest(body: Uint8Array): JsonObject {
  let request: Json
  try {
    request = parseStrictJson(body)
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause
    throw new AffidavitError('invalid_request', `the body: ${cause.message}`, { cause })
  }
  if (isJsonObject(request)) return request
  throw new AffidavitError('invalid_request', 'expected the body to be a JSON object')
}

/** Reads the demands that the caller set in the body. */
function readDemands(request: JsonObject): Demands {
  try {
    return demandsOf(request) ?? {}
  } catch (cause) {
    if (!(cause instanceof FormatError)) throw cause
    throw new AffidavitError('invalid_request', cause.message, { cause })
  }
}

/** Adds demands to the text of an object. All other bytes stay unchanged. */
function addDemands(body: Uint8Array, demands: SentDemands): Uint8Array<ArrayBuffer> {
  const text = new TextDecoder().decode(body).trimStart()
  const rest = text.slice(1)
  const separator = rest.trimStart().startsWith('}') ? '' : ','
  const member = `"${DEMANDS_MEMBER}":${JSON.stringify(demands)}`
  return new Uint8Array(encodeUtf8(`{${member}${separator}${rest}`))
}

/**
 * Replaces the caller's demands. The whole text becomes canonical, which does not change its hash.
 */
function replaceDemands(request: JsonObject, demands: SentDemands): Uint8Array<ArrayBuffer> {
  const replaced = { ...request, [DEMANDS_MEMBER]: demands }
  return new Uint8Array(encodeUtf8(canonicalizeJson(replaced)))
}

type SentDemands = Demands & { readonly nonce: string; readonly credential: CredentialDemand }

type Answered = {
  readonly call: SentCall
  readonly options: CheckedFetchOptions
  /** The signal of this call, with which its caller may abort. */
  readonly signal: AbortSignal
}

async function checkResponse(response: Response, parts: Answered): Promise<Response> {
  if (isRedirect(response))
    return refuse(response, new AffidavitError('redirected', 'expected no redirection'))
  if (!response.ok) return await passError(response)
  const type = response.headers.get('content-type') ?? ''
  const isStream = /^text\/event-stream\b/i.test(type)
  // A reader that expects a stream would show a plain object as an empty answer.
  if (isStream !== (memberOf(parts.call.request, 'stream') === true))
    return refuse(response, wrongForm(isStream))
  if (isStream && response.body !== null)
    return checkStream(response, { ...parts, body: response.body })
  try {
    return await checkWhole(response, parts)
  } catch (fault) {
    // Nothing was passed on yet. If the caller aborted or its time limit ended, the call itself
    // rejects.
    if (parts.signal.aborted && !(fault instanceof AffidavitError)) throw fault
    return refuse(response, fault)
  }
}

function wrongForm(isStream: boolean): AffidavitError {
  return new AffidavitError(
    'invalid_answer',
    isStream ? 'expected no stream: none was asked for' : 'expected the stream that was asked for',
  )
}

function checkStream(
  response: Response,
  { body, ...parts }: Answered & { readonly body: ReadableStream<Uint8Array> },
): Response {
  const stream = checkedStream(body, {
    check: async (chunks) => {
      const kept = { kind: 'stream', chunks, idempotent: parts.call.isIdempotent } as const
      parts.options.bind(checked, await prove(kept, parts))
    },
    hold: parts.options.hold,
    bytesMax: parts.options.bytesMax,
    signal: parts.signal,
  })
  const checked = likewise(response, stream)
  return checked
}

async function checkWhole(response: Response, parts: Answered): Promise<Response> {
  const bytes = await readAtMost(response, parts.options.bytesMax)
  if (bytes === null)
    throw new AffidavitError('answer_too_large', `expected at most ${parts.options.bytesMax} bytes`)
  const proof = await prove({ kind: 'whole', answer: readAnswer(bytes) }, parts)
  const checked = likewise(response, bytes)
  parts.options.bind(checked, proof)
  // With another content type from the gateway, some clients would return text instead of an
  // object.
  checked.headers.set('content-type', 'application/json')
  return checked
}

function readAnswer(bytes: Uint8Array): JsonObject {
  createAnswerSize().add(bytes)
  let answer: Json
  try {
    answer = parseExactJson(bytes)
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause
    throw new AffidavitError('invalid_answer', `the answer: ${cause.message}`, { cause })
  }
  if (!isJsonObject(answer))
    throw new AffidavitError('invalid_answer', 'expected the answer to be a JSON object')
  if (memberOf(answer, 'error') !== undefined && memberOf(answer, 'receipt') === undefined)
    throw new AffidavitError('error_in_answer', describeGatewayError(memberOf(answer, 'error')))
  return answer
}

/** Checks that an expected enclave signed the answer, then stores and returns the proof. */
async function prove(answer: KeptAnswer, { call, options }: Answered): Promise<Proof> {
  const { notaries, now, keep } = options
  const checked = await checkAnswer(answer, { call, notaries })
  const kept = { request: call.request, answer, checkedAt: new Date(now()) }
  const proof = createProof(checked, kept)
  await keep(proof)
  return proof
}

/**
 * Returns a copy of `response` with another body, without the headers for the old body's
 * compression and length.
 */
function likewise(
  { status, statusText, headers }: Response,
  body: ReadableStream<Uint8Array<ArrayBuffer>> | Uint8Array<ArrayBuffer>,
): Response {
  const kept = new Headers(headers)
  kept.delete('content-encoding')
  kept.delete('content-length')
  return new Response(body, { status, statusText, headers: kept })
}

const READERS = ['arrayBuffer', 'blob', 'bytes', 'formData', 'json', 'text'] as const

/**
 * Returns an empty response that replaces a refused answer. Every method that reads the body
 * rejects with `fault`: some engines replace the error of a stream by another error.
 */
function refuse(response: Response, fault: unknown): Response {
  void response.body?.cancel().catch(() => undefined)
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
    { pull: (controller) => controller.error(fault) },
    { highWaterMark: 0 },
  )
  const refused = new Response(body, {
    status: 200,
    headers: { 'content-type': response.headers.get('content-type') ?? 'application/json' },
  })
  for (const name of READERS)
    Object.defineProperty(refused, name, { value: () => Promise.reject(fault) })
  return refused
}
