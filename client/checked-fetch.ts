import type { KeptAnswer } from '#attestation/compare-exchange.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { createAnswerSize } from './answer-size.ts'
import { CALL_DIALECTS, type CallDialect } from './call-dialects.ts'
import { checkAnswer, describeGatewayError, type SentCall } from './check-answer.ts'
import { checkedStream } from './checked-stream.ts'
import { askCount } from './count-tokens.ts'
import { passError } from './error-reply.ts'
import { AffidavitError } from './errors.ts'
import { errorWordsOf, type Fetch, isRedirect, leavable, readAtMost, readTwice } from './gateway.ts'
import type { Notaries } from './notaries.ts'
import { draftCall } from './prepare-call.ts'
import { createProof, type Proof } from './proof.ts'
import type { Providers } from './providers.ts'
import { sendCall } from './send-call.ts'
import { countUnmade, createRepeatedCalls, signedRefusalIn } from './sends.ts'
import type { SessionTurn, SessionTurns } from './session.ts'

type CheckedFetchOptions = {
  /** The gateway's URL with `/v1/verified`. */
  readonly baseURL: string
  readonly fetch: Fetch
  readonly notaries: Notaries
  /** Null: any provider may receive a call. */
  readonly providers: Providers | null
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
  readonly bind: (answer: Response, proof: Proof) => void
  /** Unix milliseconds. */
  readonly now: () => number
  /** Null: calls are made without a session. */
  readonly session: SessionTurns | null
}

/** Header that marks the last call of a session. The gateway does not receive this header. */
export const LAST_CALL_HEADER = 'affidavit-last'

/**
 * Returns a `fetch` for calls of all dialects, lists of models and counts of tokens: `POST
 * {baseURL}/chat/completions`, `/responses`, `/anthropic/v1/messages`,
 * `/anthropic/v1/messages/count_tokens`, `GET {baseURL}/models`. It checks the answers of calls,
 * and refuses other requests with `unsupported_call`, so that no answer passes unchecked.
 *
 * It adds a nonce to each call, and states which credential the enclave must use: the credential of
 * `Fine-Tune-Authorization`, otherwise the operator's. Demands that the call already has are kept.
 * In a session, a call waits until the call before it has ended.
 *
 * An answer with an error status is not signed, and only its error is passed on. Reading the body
 * of a refused answer rejects with AffidavitError. A stream rejects before its end. Thus a client
 * that repeats calls after a failed connection does not repeat a refused call.
 */
export function createCheckedFetch(options: CheckedFetchOptions): Fetch {
  const { baseURL, fetch } = options
  const repeated = createRepeatedCalls(options.now)
  return async (input, init = {}) => {
    const request = new Request(input, { ...init, ...HALF_DUPLEX })
    const { url, method, headers } = request
    const signal = init.signal ?? request.signal
    const route = routeOf(url, { method, baseURL })
    // A request for models has no side effects, so it may be repeated.
    if (route === 'models')
      return await readTwice(() => fetch(input, { ...init, redirect: 'error' }), { signal })
    const { form, isCount } = route
    const body = new Uint8Array(await request.arrayBuffer())
    const isLast = headers.get(LAST_CALL_HEADER) === 'true'
    headers.delete(LAST_CALL_HEADER)
    const turn = isCount ? null : ((await options.session?.next({ isLast, signal })) ?? null)
    const send = (more: RequestInit) =>
      fetch(withoutQuery(url), { ...init, method, redirect: 'manual', signal, ...more })
    let isPreparing = false
    let isRunning = false
    try {
      const isEncrypted = options.encrypt
      const isProviderDemanded = options.providers !== null
      if (isCount)
        return await askCount(
          { headers, body },
          { form, isEncrypted, isProviderDemanded, send, signal },
        )
      const credential = readCredential(headers.get('fine-tune-authorization'))
      const place = turn?.place ?? null
      const providerKeys = options.providers && (await leavable(options.providers.keys(), signal))
      isPreparing = true
      const given = { form, headers, body, credential, place, providerKeys, isEncrypted }
      const draft = draftCall(given, repeated)
      isPreparing = false
      const { name, sends, isKeyed } = draft
      // Until its answer is proven, a later call with the same body is a repeat of this call.
      const onUnproven = () => {
        repeated.keep(name, sends, { isKeyed })
        turn?.lose(sends)
      }
      if (isKeyed) repeated.keep(name, sends, { isKeyed })
      try {
        const sent = await sendCall(send, { draft, credential, signal, options })
        const answered: Answered = { ...sent, form, turn, options, signal, onUnproven }
        const checked = await checkResponse(sent.response, answered)
        isRunning = checked.isRunning
        return checked.response
      } catch (fault) {
        onUnproven()
        throw fault
      }
    } catch (fault) {
      // Clients repeat a call whose promise rejects. A repeat does not help here, so this error
      // appears when the answer is read, like all other refusals.
      if (!isPreparing && isRefusal(fault)) return refuse(new Response(), fault)
      throw fault
    } finally {
      if (!isRunning) turn?.end()
    }
  }
}

/** Null without a credential. Throws for a credential that the enclave could not use. */
function readCredential(header: string | null): string | null {
  if (header === null) return null
  const credential = header.replace(/^bearer(?:\s+|$)/i, '').trim()
  if (/^[\x21-\x7e]+$/.test(credential)) return credential
  throw new AffidavitError(
    'invalid_request',
    "expected Fine-Tune-Authorization to be 'Bearer', a space and a credential of printable ASCII",
  )
}

/** Some engines require this member for streamed bodies, but not all type definitions have it. */
const HALF_DUPLEX = { duplex: 'half' } as RequestInit

function isRefusal(fault: unknown): boolean {
  return fault instanceof AffidavitError && fault.status !== undefined
}

function routeOf(
  url: string,
  { method, baseURL }: { readonly method: string; readonly baseURL: string },
): { readonly form: CallDialect; readonly isCount: boolean } | 'models' {
  const plain = withoutQuery(url)
  const path = plain.startsWith(`${baseURL}/`) ? plain.slice(baseURL.length) : ''
  const form = CALL_DIALECTS.find((one) => [...one.paths, ...one.countPaths].includes(path))
  if (method === 'POST' && form !== undefined)
    return { form, isCount: form.countPaths.includes(path) }
  if (method === 'GET' && MODELS_PATH.test(path)) return 'models'
  const expected = CALL_DIALECTS.flatMap(({ paths }) => paths.slice(0, 1)).join(', ')
  throw new AffidavitError(
    'unsupported_call',
    `expected POST to ${expected} below ${baseURL}, got ${method} ${url}: nothing else has a proof`,
  )
}

const MODELS_PATH = /^(?:\/anthropic\/v1)?\/models(?:\/[^/?#]+)?$/

/** SDKs add a query, such as `beta=true`, that has no meaning for a verified call. */
function withoutQuery(url: string): string {
  return url.replace(/[?#].*$/, '')
}

type Answered = {
  /** Called when the call ends without a proven answer. */
  readonly onUnproven: () => void
  readonly isUntaken: boolean
  readonly call: SentCall
  readonly form: CallDialect
  readonly turn: SessionTurn | null
  readonly options: CheckedFetchOptions
  readonly signal: AbortSignal
}

/** `isRunning`: the answer is a stream. The end of the stream ends the call's turn. */
type Checked = { readonly response: Response; readonly isRunning: boolean }

async function checkResponse(response: Response, parts: Answered): Promise<Checked> {
  const whole = (checked: Response): Checked => ({ response: checked, isRunning: false })
  const unproven = (refused: Response, fault: unknown) => {
    parts.onUnproven()
    return refuse(refused, fault)
  }
  if (isRedirect(response))
    return whole(unproven(response, new AffidavitError('redirected', 'expected no redirection')))
  if (!response.ok) return whole(await passFault(response, parts))
  const type = response.headers.get('content-type') ?? ''
  const isStream = /^text\/event-stream\b/i.test(type)
  const { body } = parts.form.dialect.readRequest(parts.call.request)
  // A reader that expects a stream would show a plain object as an empty answer.
  if (isStream !== (memberOf(body, 'stream') === true))
    return whole(unproven(response, wrongForm(isStream)))
  if (isStream && response.body !== null)
    return { response: checkStream(response, response.body, parts), isRunning: true }
  try {
    return whole(await checkWhole(response, parts))
  } catch (fault) {
    // Nothing was passed on yet. If the caller aborted or its time limit ended, `fetch` rejects.
    if (parts.signal.aborted && !(fault instanceof AffidavitError)) throw fault
    return whole(unproven(response, fault))
  }
}

/**
 * Passes on an error. An error with status 5xx advises clients not to repeat the call, unless its
 * enclave signed that it made nothing: otherwise the gateway could choose among answers.
 */
async function passFault(response: Response, parts: Answered): Promise<Response> {
  const { form, options, call, onUnproven, isUntaken } = parts
  const passed = await passError(response, form)
  const bytes = new Uint8Array(await passed.clone().arrayBuffer())
  const words = errorWordsOf(bytes)
  const refusal = signedRefusalIn(bytes, call)
  if (refusal !== null) countUnmade(call.sends, refusal)
  else if (response.status >= 500 && !isUntaken) passed.headers.set('x-should-retry', 'false')
  onUnproven()
  // The error only causes a request for newer evidence: the gateway could have invented it.
  if (words?.code === 'provider_key_mismatch') options.providers?.expectNewKey()
  return passed
}

function wrongForm(isStream: boolean): AffidavitError {
  return new AffidavitError(
    'invalid_answer',
    isStream ? 'expected no stream: none was asked for' : 'expected the stream that was asked for',
  )
}

function checkStream(
  response: Response,
  body: ReadableStream<Uint8Array>,
  parts: Answered,
): Response {
  const { call, form, turn, options, signal } = parts
  let isChecking = false
  let hasEnded = false
  let isProven = false
  const end = () => {
    if (!hasEnded && !isChecking && !isProven) parts.onUnproven()
    hasEnded = true
    // A signal can outlive many calls, and each listener keeps its whole answer in memory.
    signal.removeEventListener('abort', end)
    // A running check will keep the call, so the next call must wait for its place.
    if (!isChecking) turn?.end()
  }
  // A caller who aborts may never read the rest of the stream, so the abort ends the turn.
  if (turn !== null) {
    if (signal.aborted) end()
    else signal.addEventListener('abort', end, { once: true })
  }
  const stream = checkedStream(body, {
    answer: form.openReader(),
    check: async (kept) => {
      // The next call has this call's place, so this call must not be kept.
      if (hasEnded && turn !== null) throw signal.reason ?? new Error('the caller left')
      isChecking = true
      try {
        const answer = { ...kept, idempotent: call.isIdempotent }
        options.bind(checked, await prove(answer, parts))
        isProven = true
      } finally {
        isChecking = false
        if (hasEnded && !isProven) parts.onUnproven()
        if (hasEnded) turn?.end()
      }
    },
    onEnd: end,
    hold: options.hold,
    bytesMax: options.bytesMax,
    signal,
  })
  const checked = likewise(response, stream)
  return checked
}

async function checkWhole(response: Response, parts: Answered): Promise<Response> {
  const bytes = await readAtMost(response, parts.options.bytesMax)
  if (bytes === null)
    throw new AffidavitError('answer_too_large', `expected at most ${parts.options.bytesMax} bytes`)
  const proof = await prove({ kind: 'whole', answer: readAnswer(bytes, parts) }, parts)
  const checked = likewise(response, bytes)
  parts.options.bind(checked, proof)
  // If the gateway sent another content type, some clients would return text instead of an object.
  checked.headers.set('content-type', 'application/json')
  return checked
}

function readAnswer(bytes: Uint8Array, { form }: Answered): JsonObject {
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
  const error = memberOf(answer, 'error') ?? null
  if (error !== null && memberOf(form.dialect.proofOf(answer), 'receipt') === undefined)
    throw new AffidavitError('error_in_answer', describeGatewayError(error), { cause: error })
  return answer
}

async function prove(answer: KeptAnswer, { call, turn, options }: Answered): Promise<Proof> {
  const { notaries, now, keep } = options
  const checked = await checkAnswer(answer, { call, notaries })
  const kept = { request: call.request, answer, checkedAt: new Date(now()) }
  const proof = createProof(checked, kept)
  await keep(proof)
  turn?.keep(proof, call.sends)
  return proof
}

/** Returns the response with a new body, without the headers for compression and length. */
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
 * Makes every method that reads the body reject with `fault`, because some engines replace the
 * error of a stream.
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
