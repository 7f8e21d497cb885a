import { randomBytes } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import type { Dialect } from '#attestation/dialects/dialects.ts'
import { RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { CallerGone, type CallFault } from '../call-fault.ts'
import { type AnswerPort, onClose } from '../calls/answer-port.ts'
import { type StreamSink, waitForDrain } from '../calls/stream-sink.ts'
import type { Sealed } from '../log/seal.ts'
import {
  ENCRYPTED_RECORDS,
  type EnclaveFault,
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
} from '../protocol/enclave-api.ts'
import { hideCredential } from '../protocol/hide-credential.ts'
import type { RequestFault } from '../protocol/request-faults.ts'
import {
  answerError,
  answerFault,
  answerInvalid,
  type ErrorAnswer,
  errorEvent,
  inDialect,
} from './error-body.ts'
import { createFrameSealer } from './frames.ts'
import { KEY_BYTES } from './hpke.ts'
import type { ProofWaiters } from './proof-waiters.ts'

/** Interval of comments in a silent stream, milliseconds. They keep the connection open. */
export const KEEP_ALIVE_MS = 15_000

/** Largest content of one frame of an answer, bytes. */
const FRAME_BYTES_MAX = 64 * 1024

const EVENT_STREAM = 'text/event-stream; charset=utf-8'

/** The credential that was sent to a provider. */
export type ShownCredential = {
  readonly credential: string | null
  /** True for the operator's key, false for the caller's. */
  readonly isOperators: boolean
}

export const NO_CREDENTIAL: ShownCredential = { credential: null, isOperators: false }

type AnswerOptions = {
  readonly dialect: Dialect
  readonly response: ServerResponse
  readonly waiters: ProofWaiters
  /** The secret that the call's context exports for answers. */
  readonly secret: Uint8Array
  readonly enc: Uint8Array
  /** A gateway that reads nothing for this time counts as gone, milliseconds. */
  readonly drainTimeoutMs: number
  readonly keepAliveMs: number
}

/**
 * Writes the answer to one encrypted call as ENCRYPTED_RECORDS. The methods that end the answer
 * wait until the gateway has read the whole answer, so that the call still counts as running. They
 * throw CallerGone if the gateway does not read the answer.
 */
export class EncryptedAnswerPort implements AnswerPort {
  /** Null before the request was read. */
  model: string | null = null
  /** The credential that was sent to the provider. Faults must not repeat it. */
  shown: ShownCredential = NO_CREDENTIAL
  readonly #response: ServerResponse
  readonly #options: AnswerOptions
  readonly #sealer: ReturnType<typeof createFrameSealer>
  readonly #responseNonce = randomBytes(KEY_BYTES)
  #hasHead = false
  #isStream = false
  #eventsGiven = 0
  #last: string | null = null
  #keepAlive: NodeJS.Timeout | null = null

  constructor(options: AnswerOptions) {
    const { response, secret, enc } = options
    this.#response = response
    this.#options = options
    this.#sealer = createFrameSealer({ secret, enc, responseNonce: this.#responseNonce })
  }

  isGone(): boolean {
    return this.#response.destroyed
  }

  onGone(listener: () => void): () => void {
    return onClose(this.#response, listener)
  }

  openStream(options: {
    readonly cancel: AbortController
    readonly drainTimeoutMs: number
  }): StreamSink {
    this.#isStream = true
    this.#touch()
    return {
      write: (text) => {
        this.#eventsGiven += text.split('\n\n').length - 1
        return this.#writeEvents(text)
      },
      last: (chunk) => {
        this.#last = chunk
        return true
      },
      drained: () => waitForDrain(this.#response, options.cancel, options.drainTimeoutMs),
    }
  }

  async endWhole(sealed: Sealed, response: JsonObject): Promise<void> {
    const members = await this.#awaitProof(sealed, response)
    if (members === null) return
    this.#begin({ content_type: 'application/json' })
    const text = Buffer.from(this.#options.dialect.addProof(sealed.response, members))
    for (const piece of piecesOf(text)) if (!this.#frame(piece)) await this.#drained()
    await this.#finish()
  }

  async endStream(
    sealed: Sealed,
    { fault, response }: { readonly fault: CallFault | null; readonly response: JsonObject },
  ): Promise<void> {
    if (fault !== null || sealed.notice.outcome !== 'complete') {
      this.#recordSealed(sealed, response, '')
      // Without a fault, the stream is incomplete because the reader has left.
      if (fault === null) throw gone()
      await this.fail(fault.fault, response)
      return
    }
    const members = await this.#awaitProof(sealed, response)
    if (members === null) return
    this.#writeEvents(this.#options.dialect.endStream(this.#last ?? '{}', members))
    await this.#finish()
  }

  /**
   * Answers with an error: an event if the stream has begun, otherwise a status. `response`: the
   * answer from the events that were given out.
   */
  fail(fault: EnclaveFault, response: JsonObject = {}): Promise<void> {
    const report = hideCredential(fault, this.shown)
    const answer = answerFault(report, this.shown.isOperators)
    // Agents act on an error of a stream of Responses only when it comes as an event.
    const isEvent = fault.in_stream === true && this.#options.dialect.name === 'responses'
    return this.#answer(answer, { code: fault.code, isEvent }, response)
  }

  refuse(error: Parameters<typeof answerError>[0]): Promise<void> {
    return this.#answer(answerError(error), { code: 'invalid_request' })
  }

  refuseRequest(faults: readonly RequestFault[]): Promise<void> {
    return this.#answer(answerInvalid(faults), { code: 'invalid_request' })
  }

  stopKeepAlive(): void {
    if (this.#keepAlive !== null) clearTimeout(this.#keepAlive)
    this.#keepAlive = null
  }

  async #answer(
    answer: ErrorAnswer,
    { code, isEvent = false }: { readonly code: EnclaveFault['code']; readonly isEvent?: boolean },
    response: JsonObject = {},
  ): Promise<void> {
    const { name } = this.#options.dialect
    const { head, body } = inDialect(name, answer)
    const report: EncryptedFault = { code, model: this.model }
    if (isEvent) this.#begin({ content_type: EVENT_STREAM })
    if (this.#hasHead) {
      this.#recordJson(ENCRYPTED_RECORDS.fault, report)
      this.#writeEvents(errorEvent(name, body, { events: this.#eventsGiven, response }))
    } else {
      this.#begin(head)
      this.#recordJson(ENCRYPTED_RECORDS.fault, report)
      for (const piece of piecesOf(Buffer.from(body))) this.#frame(piece)
    }
    await this.#finish()
  }

  /** Returns the proof's members as text. If they are late, sends an error and returns null. */
  async #awaitProof(sealed: Sealed, response: JsonObject): Promise<string | null> {
    if (this.isGone()) throw gone()
    const { waiters } = this.#options
    const call = String(sealed.notice.index)
    const proof = waiters.open(call)
    this.#recordSealed(sealed, response, call)
    const forget = this.onGone(() => waiters.forget(call))
    const known = await proof.finally(forget)
    if (known === 'gone') throw gone()
    if (known === 'late') {
      await this.#answer(answerError(COMMIT_DELAYED), { code: 'not_ready' }, response)
      return null
    }
    return `${sealed.members},"tx_hash":"${known.tx_hash}","log":${JSON.stringify(known.log)}`
  }

  #writeEvents(text: string): boolean {
    this.#begin({ content_type: EVENT_STREAM })
    this.#touch()
    let hasRoom = true
    for (const piece of piecesOf(Buffer.from(text))) hasRoom = this.#frame(piece)
    return hasRoom
  }

  #touch(): void {
    if (!this.#isStream) return
    this.stopKeepAlive()
    this.#keepAlive = setTimeout(() => this.#writeEvents(': ping\n\n'), this.#options.keepAliveMs)
  }

  #frame(content: Uint8Array): boolean {
    return this.#record(ENCRYPTED_RECORDS.frame, this.#sealer.seal(content))
  }

  /** Writes the head before all other records. Does nothing after the first call. */
  #begin(head: Partial<EncryptedHead> & Pick<EncryptedHead, 'content_type'>): void {
    if (this.#hasHead) return
    this.#hasHead = true
    const whole = { status: 200, retry_after_seconds: null, should_retry: true, ...head }
    this.#recordJson(ENCRYPTED_RECORDS.head, whole)
  }

  #recordSealed({ notice }: Sealed, response: JsonObject, call: string): void {
    const report = {
      ...notice,
      call,
      model: this.model ?? '',
      usage: this.#options.dialect.usageOf(response),
    }
    this.#recordJson(ENCRYPTED_RECORDS.sealed, report)
  }

  #recordJson(kind: number, content: EncryptedHead | EncryptedSealed | EncryptedFault): void {
    this.#record(kind, Buffer.from(JSON.stringify(content)))
  }

  #record(kind: number, content: Uint8Array): boolean {
    if (!this.#response.headersSent)
      this.#response.writeHead(200, {
        'content-type': 'application/octet-stream',
        [RESPONSE_NONCE_HEADER]: this.#responseNonce.toString('hex'),
      })
    const head = Buffer.alloc(1 + 4)
    head.writeUInt8(kind)
    head.writeUInt32BE(content.length, 1)
    return this.#response.write(Buffer.concat([head, content]))
  }

  async #drained(): Promise<void> {
    if (this.isGone()) throw gone()
    const cancel = new AbortController()
    const forget = this.onGone(() => cancel.abort(gone()))
    await waitForDrain(this.#response, cancel, this.#options.drainTimeoutMs)
    forget()
    cancel.signal.throwIfAborted()
  }

  #finish(): Promise<void> {
    this.stopKeepAlive()
    if (this.isGone()) return Promise.reject(gone())
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => end(false), this.#options.drainTimeoutMs)
      const forget = this.onGone(() => end(this.#response.writableFinished))
      const end = (isTaken: boolean) => {
        clearTimeout(timer)
        forget()
        if (isTaken) resolve()
        else reject(gone())
      }
      this.#response.once('finish', () => end(true))
      this.#response.end()
    })
  }
}

const COMMIT_DELAYED = {
  code: 'commit_delayed',
  message:
    'The completion is sealed but not stored yet: it will be in the history, unless its enclave ends first',
} as const

function gone(): CallerGone {
  return new CallerGone('the gateway closed the connection, or reads no more')
}

function* piecesOf(text: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < text.length; at += FRAME_BYTES_MAX)
    yield text.subarray(at, at + FRAME_BYTES_MAX)
}
