import { z } from 'zod'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import {
  ANSWER_TOKENS_HEADER,
  ENCAPSULATED_KEY_HEADER,
  KEY_CONFIG_PROBLEM,
  NOTARY_HEADER,
  RESPONSE_NONCE_HEADER,
} from '#attestation/ehbp.ts'
import { callerCodeOf } from '#enclave/protocol/call-errors.ts'
import {
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
  SEALED_CREDENTIAL_BYTES_MAX,
} from '#enclave/protocol/enclave-api.ts'
import { admitCall, type RateLimiter } from '../../accounts/limits/limiter.ts'
import { TOKENS_MAX } from '../../accounts/prices.ts'
import type { RouteContext } from '../../api/context.ts'
import { ApiError, asError, CallerLeftError, ERROR_RULES, retryHeaders } from '../../api/errors.ts'
import { drained } from '../../api/event-stream.ts'
import { type PassedBody, passBody } from '../../api/read-body.ts'
import type { RawCall } from '../../api/route.ts'
import { described, faultIssue, integerText } from '../../api/schemas.ts'
import { recordFailure, recordProcessingTime } from '../../api/track-calls.ts'
import { validate } from '../../api/validation.ts'
import { EnclaveError, faultErrorOf, outageErrorOf } from '../../enclaves/enclave-errors.ts'
import {
  bringProof,
  type EncryptedAnswer,
  type EncryptedEvent,
} from '../../enclaves/encrypted-answer.ts'
import type { EncryptedEndpoint } from '../../enclaves/peer-enclaves.ts'
import type { ServiceEnclaves } from '../../enclaves/service-enclaves.ts'
import { inPhase } from '../../observability/call-scope.ts'
import type { Logger } from '../../observability/logger.ts'
import { encodeCallContext } from '../call-context.ts'
import { proofOf } from '../commits/committed-heads.ts'
import type { AnsweredRecord } from '../records/records-store.ts'
import type { ModelOutcomes } from './verified-completions.ts'

/**
 * Encrypted calls (EHBP). The gateway cannot read the bytes that it passes on. It sees only
 * headers, lengths and times.
 */

/** A connection that accepts no data for this time is closed. */
const DRAIN_TIMEOUT_MS = 30_000

/**
 * Maximum number of bytes that frames add to a body. A frame adds 20 bytes, and clients send one
 * frame per write.
 */
const FRAMING_BYTES_MAX = 1024 * 1024

/** An estimate. */
const BYTES_PER_TOKEN = 4

/**
 * Limits the estimate for a prompt that was not read. A prompt may contain pictures, which have
 * many bytes.
 */
const UNREAD_PROMPT_TOKENS_MAX = 100_000

/**
 * Sent when the enclave no longer has the key. The caller fetches keys and repeats the call (EHBP).
 */
const KEY_CONFIG_BODY = JSON.stringify({
  type: KEY_CONFIG_PROBLEM,
  title: 'No enclave in use has this key. The call was not processed: fetch the keys again.',
})

const sealedCredential = described(
  z.string().transform((header, context) => {
    const [, sealed = ''] = /^hpke +([A-Za-z0-9_-]+)$/i.exec(header.trim()) ?? []
    const length = Math.floor((sealed.length * 3) / 4)
    if (sealed !== '' && length <= SEALED_CREDENTIAL_BYTES_MAX) return sealed
    context.issues.push(
      faultIssue([], 'value_error', 'Input should be `hpke` and a sealed credential in base64url'),
    )
    return z.NEVER
  }),
  () => ({
    type: 'string',
    description: '`hpke <base64url>`: the credential at the provider, sealed to the same key',
  }),
).optional()

/** Names the enclave that a call is meant for. */
export const notaryHeader = z
  .string()
  .regex(/^0x[0-9a-fA-F]{40}$/)
  .transform((text) => text.toLowerCase())
  .optional()

const encryptedHeaders = z.object({
  [NOTARY_HEADER]: notaryHeader,
  'fine-tune-authorization': sealedCredential,
  [ANSWER_TOKENS_HEADER]: integerText({ min: 1, max: TOKENS_MAX }).optional(),
})

const ENCAPSULATED_KEY_FORM = /^[0-9a-f]{64}$/

export type EncryptedCalls = {
  readonly enclaves: Pick<ServiceEnclaves, 'findEncrypted' | 'wellKnownKeys'>
  /** Limit for a body without its frames. */
  readonly bodyBytesMax: number
  /** Throws ApiError `not_ready` while completions cannot be committed. */
  readonly requireCommits: () => void
  /** Resolves when the record of a sealed completion is stored. Throws ApiError. */
  readonly recordOf: (
    sealed: Pick<EncryptedSealed, 'notary' | 'index'>,
    abort: AbortController,
  ) => Promise<AnsweredRecord>
  /**
   * All credentials of the operator, by provider name. The gateway cannot read the model of an
   * encrypted call, so the enclave gets all credentials.
   */
  readonly credentials: () => ReadonlyMap<string, string>
  /**
   * Time in which a pull can send the proof to the enclave, milliseconds. 0: pulls send no proofs.
   */
  readonly patienceMs: number
  readonly limiter: Pick<RateLimiter, 'admit'>
  /** Called with the model of each completion. */
  readonly outcomes: Pick<ModelOutcomes, 'recordServed'>
  /** Milliseconds. */
  readonly now: () => number
  readonly log: Logger
}

/** Checks only whether the call has the header. */
export function isEncryptedCall(context: RouteContext): boolean {
  return context.req.headers[ENCAPSULATED_KEY_HEADER] !== undefined
}

/** Errors are encrypted only after the enclave has opened the call. */
export async function serveEncryptedCall(
  service: EncryptedCalls,
  { context, rate, abort }: RawCall,
  dialect: DialectName,
): Promise<void> {
  if (context.req.headers['idempotency-key'] !== undefined)
    throw new ApiError(
      'unsupported_request_parameter',
      'Expected no Idempotency-Key with an encrypted call: the service keeps no answer that it could repeat',
    )
  const encapsulatedKey = context.get(ENCAPSULATED_KEY_HEADER)
  if (!ENCAPSULATED_KEY_FORM.test(encapsulatedKey))
    throw new ApiError('bad_ciphertext', `Expected ${ENCAPSULATED_KEY_HEADER} to be 64 hex digits`)
  const headers = validate('header', encryptedHeaders, context.headers)
  service.requireCommits()
  const bytesMax = service.bodyBytesMax + FRAMING_BYTES_MAX
  const body = passBody(context.req, context.res, { bytesMax, rate })
  // The gateway cannot read the size of an encrypted call, so the limiter first counts one token.
  const stated = headers[ANSWER_TOKENS_HEADER] ?? null
  const permit = await admitCall(context, service.limiter, {
    kind: 'verified',
    model: '',
    estimate: 1,
    promptTokens: promptTokensOf(Number(context.req.headers['content-length'] ?? Infinity)),
    answers: { count: 1, tokensMax: stated },
  })
  const tally: Tally = { isOpened: false, model: null, usage: null, frames: 0 }
  const call = { context, abort, headers, encapsulatedKey, dialect, body, tally }
  try {
    const answer = await ask(service, call)
    if (answer === null) answerKeyConfig(context)
    else await passOn(service, { ...call, ...answer })
  } finally {
    const { tokens, prompt } = usedTokens(call.tally, body)
    permit.settle(tokens, call.tally.model ?? undefined, prompt)
  }
}

type ServedCall = {
  readonly context: RouteContext
  readonly abort: AbortController
  readonly headers: z.output<typeof encryptedHeaders>
  readonly encapsulatedKey: string
  readonly dialect: DialectName
  readonly body: PassedBody
  readonly tally: Tally
}

type Tally = {
  /** True if a provider may have received the request. */
  isOpened: boolean
  /** Null until the completion is sealed, and for a refused call. */
  model: string | null
  usage: EncryptedSealed['usage']
  frames: number
}

/**
 * Returns the provider's token counts. Without them, estimates the tokens from bytes and frames.
 */
function usedTokens(
  { isOpened, usage, frames }: Tally,
  body: PassedBody,
): { readonly tokens: number; readonly prompt: number } {
  if (usage !== null) return { tokens: usage.total_tokens, prompt: usage.prompt_tokens }
  if (!isOpened) return { tokens: 0, prompt: 0 }
  const prompt = promptTokensOf(body.bytes())
  return { tokens: prompt + frames, prompt }
}

function promptTokensOf(bytes: number): number {
  return Math.min(Math.ceil(bytes / BYTES_PER_TOKEN), UNREAD_PROMPT_TOKENS_MAX)
}

type OpenAnswer = {
  readonly answer: Extract<EncryptedAnswer, { kind: 'answer' }>
  readonly endpoint: EncryptedEndpoint
}

/** Returns null when no enclave has the call's key. The caller must then fetch other keys. */
async function ask(
  { enclaves, credentials, now, log }: EncryptedCalls,
  { context, abort, headers, encapsulatedKey, dialect, body, tally }: ServedCall,
): Promise<OpenAnswer | null> {
  const endpoint = enclaves.findEncrypted(headers[NOTARY_HEADER] ?? null)
  if (endpoint === null) return refuseWithoutKeys(enclaves)
  const { requestId, caller } = context.state
  const most = headers[ANSWER_TOKENS_HEADER]
  const encrypted = {
    context: encodeCallContext({ accountId: caller?.accountId ?? '', requestId }),
    credentials: Object.fromEntries(credentials()),
    encapsulated_key: encapsulatedKey,
    ...(dialect === 'chat' ? {} : { dialect }),
    sealed_credential: headers['fine-tune-authorization'] ?? null,
    ...(most === undefined ? {} : { answer_tokens_max: most }),
  }
  let answer: EncryptedAnswer
  try {
    answer = await inPhase(
      { phase: 'enclave', now },
      endpoint.encrypted(encrypted, body, abort.signal),
    )
  } catch (error) {
    const isUnsent = error instanceof EnclaveError && !error.wasSent
    // If the enclave has the whole request, a provider may already be answering.
    tally.isOpened = body.stream.readableEnded && !isUnsent
    if (!(error instanceof EnclaveError)) throw error
    log.warn({ requestId, err: error }, 'encrypted call failed')
    // No byte was sent, so the caller may try a key of another enclave.
    if (isUnsent) return refuseWithoutKeys(enclaves)
    throw outageErrorOf(error)
  }
  if (answer.kind === 'answer') return { answer, endpoint }
  if (answer.fault.code === 'unknown_key') return null
  throw faultErrorOf(answer.fault, true)
}

/**
 * Returns null when the caller can fetch other keys. Throws ApiError `enclave_unavailable`
 * otherwise.
 */
function refuseWithoutKeys(enclaves: EncryptedCalls['enclaves']): null {
  if (enclaves.wellKnownKeys().length > 0) return null
  throw new ApiError('enclave_unavailable', 'No enclave in use takes encrypted calls, try again', {
    leavesNoResult: true,
  })
}

function answerKeyConfig(context: RouteContext): void {
  context.status = ERROR_RULES.unknown_encryption_key.status
  context.state.failure = { code: 'unknown_encryption_key', status: context.status }
  context.set('content-type', 'application/problem+json')
  context.body = KEY_CONFIG_BODY
}

/** Passes on each frame as soon as it arrives. */
async function passOn(service: EncryptedCalls, call: ServedCall & OpenAnswer): Promise<void> {
  const { context, abort, answer, tally } = call
  const { res } = context
  context.respond = false
  res.on('error', () => undefined)
  tally.isOpened = true
  const answered = new AbortController()
  let proven: Promise<void> | null = null
  try {
    for await (const event of answer.events) {
      if (event.kind === 'head') begin(service, call, event.head)
      else if (event.kind === 'frames') await write(service, call, event)
      else if (event.kind === 'fault') recordFault(service, call, event.fault)
      else proven = recordSealed(service, call, event.sealed, answered.signal)
    }
    answered.abort()
    await proven
    if (!res.headersSent) throw new EnclaveError('protocol', 'the enclave ended an answer unbegun')
    res.end()
  } catch (error) {
    if (!res.headersSent && !res.destroyed) context.respond = true
    // An answer that has begun is cut off, because half an answer must not look complete.
    const fault = error instanceof EnclaveError ? outageErrorOf(error) : asError(error)
    abort.abort(fault)
    throw fault
  }
}

/**
 * Waits until the completion is stored. Then sends the proof to the enclave, unless a pull does
 * this. Never rejects: an error other than `commit_delayed` ends the call.
 */
async function recordSealed(
  service: EncryptedCalls,
  { context, abort, headers, tally, endpoint }: ServedCall & OpenAnswer,
  sealed: EncryptedSealed,
  answered: AbortSignal,
): Promise<void> {
  Object.assign(tally, { usage: sealed.usage, model: sealed.model })
  // The stream was cut off: the completion is in the log, but the caller gets no proof.
  if (sealed.call === '') return
  // Only a call without the caller's own credential shows that the operator's credential works.
  if (headers['fine-tune-authorization'] === undefined) service.outcomes.recordServed(sealed.model)
  const giveProof = endpoint.giveProof?.bind(endpoint)
  if (giveProof === undefined) return
  const { signal } = abort
  const waiting = new AbortController()
  const end = () => waiting.abort(signal.reason)
  signal.addEventListener('abort', end)
  if (signal.aborted) end()
  try {
    await bringProof({
      proof: service.recordOf(sealed, waiting).then((record) => proofOf(sealed.call, record)),
      give: (proof) => giveProof(proof, signal),
      patienceMs: service.patienceMs,
      answered,
    })
  } catch (error) {
    if (error instanceof ApiError && error.code === 'commit_delayed')
      recordFailure(context, error, service.log)
    else abort.abort(error)
  } finally {
    signal.removeEventListener('abort', end)
  }
}

function begin(
  { now }: EncryptedCalls,
  { context, answer }: ServedCall & OpenAnswer,
  head: EncryptedHead,
): void {
  const { retry_after_seconds: wait } = head
  recordProcessingTime(context, now)
  for (const [name, value] of Object.entries({
    'content-type': head.content_type,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    [RESPONSE_NONCE_HEADER]: answer.responseNonce,
    ...(wait === null ? {} : retryHeaders(wait)),
    ...(head.should_retry ? {} : { 'x-should-retry': 'false' }),
  }))
    context.res.setHeader(name, value)
  context.res.writeHead(head.status)
  context.res.flushHeaders()
}

async function write(
  { now }: EncryptedCalls,
  { context, tally }: ServedCall,
  { bytes }: Extract<EncryptedEvent, { kind: 'frames' }>,
): Promise<void> {
  const { res, state } = context
  if (res.destroyed) throw new CallerLeftError()
  state.firstEventAtMs ??= now()
  tally.frames++
  if (!res.write(bytes)) await drained(res, DRAIN_TIMEOUT_MS)
}

/** Records a fault without its text, because only the caller may read the text. */
function recordFault(
  { log }: EncryptedCalls,
  { context, tally }: ServedCall,
  { code }: EncryptedFault,
): void {
  const { state, res } = context
  const callerCode = callerCodeOf(code)
  // The enclave refused the call before the answer began.
  if (tally.model === null && tally.frames === 0) tally.isOpened = false
  // An invalid request is not recorded as a failure: the logged status is enough.
  if (code === 'invalid_request') return
  const isWithin = tally.frames > 0
  state.failure ??= {
    code: callerCode,
    status: isWithin ? ERROR_RULES[callerCode].status : res.statusCode,
  }
  if (callerCode === 'internal_server_error')
    log.error({ requestId: state.requestId, code }, 'encrypted call failed in its enclave')
}
