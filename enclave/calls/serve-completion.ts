import { encodeHex } from '#attestation/bytes.ts'
import { type Demands, digestCredential } from '#attestation/demands.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { refusalDigest, type SignedRefusal } from '#attestation/refusal.ts'
import type { AttestationKeeper } from '../attestation-keeper.ts'
import { CallerGone, CallFault, logFull, refusalFault, statedFault } from '../call-fault.ts'
import type { Limits } from '../config.ts'
import type { Attempts } from '../log/attempts.ts'
import type { Reservation, Space } from '../log/memory-budget.ts'
import type { NotaryLog } from '../log/notary-log.ts'
import { type FinishedCompletion, type Sealed, sealCompletion } from '../log/seal.ts'
import type { NotaryAccount } from '../notary-key.ts'
import { chooseProvider, endpointOf, unsupportedMessage } from '../protocol/choose-provider.ts'
import type { CompletionCall, ProviderEntry } from '../protocol/enclave-api.ts'
import { REFUSAL_BYTES_MAX, readRefusal } from '../protocol/refusal.ts'
import type { ProviderAnswer, Transport } from '../providers/transport.ts'
import { admitAnswer } from './answer-memory.ts'
import type { AnswerPort } from './answer-port.ts'
import type { ParsedRequest } from './parse-request.ts'
import { createWatchdog, readAnswerBody, type Watchdog } from './read-body.ts'
import { relayStream } from './relay-stream.ts'

/**
 * Time limit for the body of a refusal, milliseconds. After it, the refusal lacks the provider's
 * text.
 */
const REFUSAL_TIMEOUT_MS = 10_000

export type CompletionCore = {
  readonly providers: readonly ProviderEntry[]
  readonly limits: Limits
  readonly transport: Transport
  readonly account: NotaryAccount
  readonly log: NotaryLog
  readonly attempts: Attempts
  readonly space: Space
  readonly attestation: AttestationKeeper
  /** Unix milliseconds. */
  readonly now: () => number
  /** Makes a `chatcmpl-…` id for an answer without an id. */
  readonly makeId: () => string
}

type ArrivedCall = {
  readonly call: CompletionCall
  readonly isEncrypted: boolean
  readonly parsed: ParsedRequest
  /** Bytes of memory for the request. */
  readonly requestBytes: number
}

/**
 * Makes one completion. Signs a refusal if the call has a nonce and certainly nothing was made. A
 * call for another provider is not counted: the gateway repeats it. Throws as makeCompletion.
 */
export async function serveCompletion(
  core: CompletionCore,
  arrived: ArrivedCall,
  port: AnswerPort,
): Promise<void> {
  if (port.isGone()) throw new CallerGone('the gateway closed the connection')
  const provider = findProvider(core.providers, arrived.parsed, arrived.call.provider)
  const attempt = core.attempts.count(arrived.parsed.requestDigest)
  if (attempt === null)
    throw new CallFault('too_busy', 'Too many different requests within an hour.')
  try {
    await makeCompletion(core, arrived, port, { provider, attempt })
  } catch (error) {
    const isSigned = error instanceof CallFault && arrived.parsed.demands.nonce !== undefined
    if (!isSigned || error.fault.may_be_made === true) throw error
    const { code, message, ...more } = error.fault
    const refusal = signRefusal(core, arrived.parsed, { attempt, code })
    throw new CallFault(code, message, { ...more, refusal })
  }
}

function signRefusal(
  { account, now }: CompletionCore,
  { requestDigest }: ParsedRequest,
  { attempt, code }: { readonly attempt: number; readonly code: string },
): SignedRefusal {
  const { notary } = account
  const statement = { request_hash: encodeHex(requestDigest), notary, attempt, code, at: now() }
  const signature = `0x${encodeHex(account.sign(refusalDigest(statement)))}`
  return { ...statement, signature }
}

/**
 * Makes one completion: chooses the provider, calls the provider once (without repeats), answers
 * through `port`, and appends a leaf to the log. If the gateway closes the connection, the request
 * to the provider is aborted at once, unless the call has `outlives_gateway`. Throws CallFault,
 * ProviderRefusal or CallerGone if no leaf was made, even after the response has begun.
 */
async function makeCompletion(
  core: CompletionCore,
  arrived: ArrivedCall,
  port: AnswerPort,
  { provider, attempt }: Pick<RunningCall, 'provider' | 'attempt'>,
): Promise<void> {
  const { call, parsed } = arrived
  checkNotary(core, parsed.demands)
  checkCredential(call, parsed.demands)
  if (core.attestation.current() === null) throw core.attestation.unavailable()
  const space = core.space.reserve(arrived.requestBytes)
  if (space === null) throw logFull()
  const cancel = new AbortController()
  const watchdog = createWatchdog(cancel)
  const deadline = setTimeout(() => {
    cancel.abort(new CallFault('provider_timeout', 'The provider took too long for its answer.'))
  }, core.limits.answerTimeoutMs)
  const abandon = () => cancel.abort(new CallerGone('the gateway closed the connection'))
  const forget = call.outlives_gateway === true ? () => undefined : port.onGone(abandon)
  try {
    const startedAtMs = core.now()
    await askProvider({
      ...arrived,
      core,
      provider,
      space,
      cancel,
      watchdog,
      port,
      attempt,
      startedAtMs,
    })
  } finally {
    forget()
    clearTimeout(deadline)
    watchdog.rest()
    space.release()
  }
}

type RunningCall = ArrivedCall & {
  readonly core: CompletionCore
  readonly provider: ProviderEntry
  readonly space: Reservation
  readonly cancel: AbortController
  readonly watchdog: Watchdog
  readonly port: AnswerPort
  /** Number of calls of this request so far, including this call. */
  readonly attempt: number
  readonly startedAtMs: number
}

function findProvider(
  table: readonly ProviderEntry[],
  { model, form }: ParsedRequest,
  expected: string,
): ProviderEntry {
  const dialect = form.dialect.name
  const provider = chooseProvider(table, model, dialect)
  if (provider === null)
    throw new CallFault('unsupported_model', unsupportedMessage(table, model, dialect))
  if (provider.name === expected) return provider
  throw new CallFault(
    'provider_mismatch',
    `The model is served by ${provider.name}; the credential is for another.`,
  )
}

/**
 * A gateway with several enclaves may give a call to each and choose among the answers, unless the
 * caller names one. Throws CallFault `notary_mismatch`.
 */
function checkNotary({ account }: CompletionCore, { notary }: Demands): void {
  if (notary === undefined || notary === account.notary) return
  throw new CallFault(
    'notary_mismatch',
    `The call demands the enclave ${notary}, and came to ${account.notary}.`,
  )
}

/**
 * Compares the credential with the caller's demand. A gateway may leave out or replace the
 * credential, but cannot change the demand unnoticed. Throws CallFault `credential_mismatch`.
 */
function checkCredential({ credential, is_callers: isCallers }: CompletionCall, demands: Demands) {
  const { nonce = '', credential: demand } = demands
  if (demand === undefined) return
  const callers = isCallers === true ? credential : null
  const isDemanded =
    demand === 'operator'
      ? callers === null
      : callers !== null && digestCredential(nonce, callers) === demand.sha256
  if (!isDemanded)
    throw new CallFault(
      'credential_mismatch',
      demand === 'operator'
        ? "The call demands the operator's credential, and came with a caller's."
        : 'The credential that the call demands did not come with it.',
    )
}

async function askProvider(running: RunningCall): Promise<void> {
  const { core, call, parsed, provider, cancel, watchdog } = running
  let mayBeMade = false
  watchdog.expect('an answer', core.limits.firstByteTimeoutMs)
  try {
    const answer = await core.transport.send({
      provider,
      endpoint: endpointOf(provider, parsed.form.dialect.name) ?? provider,
      credential: call.credential,
      headers: parsed.forwardedHeaders,
      keys: [provider.keys, parsed.demands.provider_keys],
      body: parsed.forwarded,
      isStream: parsed.isStream,
      cancel,
      onConnected: () => {
        mayBeMade = true
      },
    })
    try {
      if (answer.status >= 300) mayBeMade = false
      await checkHead(running, answer)
      await (parsed.isStream ? answerStream(running, answer) : answerWhole(running, answer))
    } finally {
      // Closes the connection of a body that was not read to its end.
      if (!answer.body.readableEnded) answer.body.destroy()
    }
  } catch (error) {
    if (!(mayBeMade && error instanceof CallFault)) throw error
    const { code, message, ...more } = error.fault
    if (code === 'provider_refused') throw error
    throw new CallFault(code, message, { ...more, may_be_made: true })
  }
}

/** Throws if the answer cannot be a completion. */
async function checkHead(running: RunningCall, answer: ProviderAnswer): Promise<void> {
  const { status, headers } = answer
  if (status >= 400)
    throw refusalFault(status, readRefusal({ headers, body: await readReasons(running, answer) }))
  if (status !== 200)
    throw new CallFault('provider_error', `The provider answered with status ${status}.`)
  const encoding = headers['content-encoding'] ?? 'identity'
  if (encoding !== 'identity')
    throw new CallFault(
      'provider_error',
      'The provider compressed its answer although it was asked not to.',
    )
}

async function readReasons(running: RunningCall, { body }: ProviderAnswer): Promise<Uint8Array> {
  const { cancel, space, watchdog } = running
  watchdog.expect('its reason', REFUSAL_TIMEOUT_MS)
  const terms = {
    signal: cancel.signal,
    bytesMax: REFUSAL_BYTES_MAX,
    space,
    watchdog,
    idleTimeoutMs: REFUSAL_TIMEOUT_MS,
  }
  try {
    return (await readAnswerBody(body, terms)).bytes
  } catch (error) {
    if (error instanceof CallFault) return new Uint8Array()
    throw error
  }
}

/** The fault of an answer of another type than `asked`, with the provider's words if any. */
function otherType({ headers }: ProviderAnswer, asked: string, body: Uint8Array): CallFault {
  const { 'content-type': type = 'no content type' } = headers
  const { message } = readRefusal({
    headers: {},
    body: STREAM.test(type) ? new Uint8Array() : body,
  })
  const reason = message === null ? '.' : `: ${message}`
  return new CallFault(
    'provider_error',
    `The provider answered with ${type.slice(0, 100)} where ${asked} was asked for${reason}`,
  )
}

const JSON_TYPE = /^\s*application\/([\w.-]+\+)?json\b/i
const OPENING_BRACE = 0x7b
const PAGE = /^\s*text\/html\b/i
const STREAM = /^\s*text\/event-stream\b/i

async function answerWhole(running: RunningCall, answer: ProviderAnswer): Promise<void> {
  const { core, cancel, space, watchdog } = running
  const { answerBytesMax: bytesMax, idleTimeoutMs } = core.limits
  const body = await readAnswerBody(answer.body, {
    signal: cancel.signal,
    bytesMax,
    space,
    watchdog,
    idleTimeoutMs,
  })
  admitAnswer(space, body.bytes)
  const completion = readCompletion(running, answer, body.bytes)
  const sealed = seal(running, answer, {
    response: completion,
    streamHash: null,
    receivedHash: body.hash,
    outcome: 'complete',
  })
  watchdog.rest()
  await running.port.endWhole(sealed, completion)
}

/** An answer that is not JSON fails with its content type. */
function readCompletion(running: RunningCall, answer: ProviderAnswer, bytes: Uint8Array) {
  try {
    return running.parsed.form.readAnswer(bytes, makeFallback(running))
  } catch (error) {
    const isObject = bytes.find((byte) => byte > 0x20) === OPENING_BRACE
    const isJson = isObject || JSON_TYPE.test(answer.headers['content-type'] ?? '')
    if (isJson || !(error instanceof CallFault)) throw error
    throw otherType(answer, 'JSON', bytes)
  }
}

async function answerStream(running: RunningCall, answer: ProviderAnswer): Promise<void> {
  const { core, parsed, cancel, space, watchdog, port } = running
  const type = answer.headers['content-type'] ?? ''
  if (JSON_TYPE.test(type) || PAGE.test(type))
    throw otherType(answer, 'a stream', await readReasons(running, answer))
  const { answerBytesMax: bytesMax, idleTimeoutMs, drainTimeoutMs } = core.limits
  const sink = port.openStream({ cancel, drainTimeoutMs })
  const relayed = await relayStream({
    body: answer.body,
    bodyTerms: { signal: cancel.signal, bytesMax, space },
    refuseStart: (start) => {
      if (!STREAM.test(type)) throw otherType(answer, 'a stream', start)
      if (start.find((byte) => byte > 0x20) === OPENING_BRACE)
        throw statedFault(readRefusal({ headers: {}, body: start }))
    },
    open: (parts) => parsed.form.openStream(parsed.body, makeFallback(running), parts),
    sink,
    watchdog,
    idleTimeoutMs,
  })
  const sealed = seal(running, answer, relayed)
  watchdog.rest()
  await port.endStream(sealed, relayed)
}

function makeFallback({ core, parsed, provider, startedAtMs }: RunningCall) {
  let id: string | null = null
  return {
    // Created only when needed: nearly all providers send an id.
    get id() {
      id ??= core.makeId()
      return id
    },
    created: Math.floor(startedAtMs / 1000),
    model: parsed.model,
    provider: provider.name,
  }
}

function seal(
  { core, call, isEncrypted, parsed, provider, attempt, startedAtMs }: RunningCall,
  { tls }: ProviderAnswer,
  result: Pick<FinishedCompletion, 'response' | 'streamHash' | 'receivedHash' | 'outcome'>,
): Sealed {
  const document = core.attestation.current()
  if (document === null) throw core.attestation.unavailable()
  const answeredBy: Receipt['provider'] = { name: provider.name, origin: provider.origin, tls }
  return sealCompletion(
    { account: core.account, log: core.log, document },
    {
      dialect: parsed.form.dialect,
      headers: parsed.headers,
      canonicalRequest: parsed.canonicalRequest,
      requestDigest: parsed.requestDigest,
      response: result.response,
      streamHash: result.streamHash,
      attempt,
      forwardedHash: parsed.forwardedHash,
      receivedHash: result.receivedHash,
      provider: answeredBy,
      requestedModel: parsed.model,
      outcome: result.outcome,
      startedAtMs,
      finishedAtMs: core.now(),
      credential: {
        from: call.credential === null ? 'none' : call.is_callers === true ? 'caller' : 'operator',
        demanded: parsed.demands.credential !== undefined,
      },
      context: call.context,
      isEncrypted,
      inNotice: call.tells_completion === true,
    },
  )
}
