import { randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { RESPONSE_NONCE_HEADER } from '../../attestation/ehbp.ts'
import { measureJson } from '../../attestation/json/json-size.ts'
import type { JsonObject } from '../../attestation/json/value.ts'
import { CallerGone, CallFault, ProviderRefusal } from '../call-fault.ts'
import { type AnswerPort, onClose } from '../calls/answer-port.ts'
import { parseRequest } from '../calls/parse-request.ts'
import { type CompletionCore, serveCompletion } from '../calls/serve-completion.ts'
import { type StreamSink, waitForDrain } from '../calls/stream-sink.ts'
import { type Sealed, usageOf } from '../log/seal.ts'
import { weighJson } from '../log/weigh-json.ts'
import { chooseProvider } from '../protocol/choose-provider.ts'
import {
  ENCRYPTED_RECORDS,
  type EnclaveFault,
  type EncryptedCall,
  type EncryptedFault,
  type EncryptedHead,
  type EncryptedSealed,
  type ProviderEntry,
} from '../protocol/messages.ts'
import { answerError, answerFault } from './error-body.ts'
import { createFrameSealer } from './frames.ts'
import { KEY_BYTES } from './hpke.ts'
import type { KeyRing } from './key-ring.ts'
import { openCall } from './open-call.ts'
import type { ProofWaiters } from './proof-waiters.ts'

/** What encrypted calls work with, beside what all calls do. */
export type EncryptedCore = {
  readonly core: CompletionCore
  readonly ring: KeyRing
  readonly waiters: ProofWaiters
}

/** How long nothing is sent before a comment is, milliseconds: a caller's connection stays open. */
const KEEP_ALIVE_MS = 15_000

/** Content of one frame of an answer that is sent whole, bytes. */
const FRAME_BYTES_MAX = 64 * 1024

const EVENT_STREAM = 'text/event-stream; charset=utf-8'

/**
 * Makes one encrypted completion. Until the call is opened, faults are thrown; whatever comes after
 * that is answered encrypted, errors too. The gateway gets EncryptedRecords: how to answer, frames
 * to pass on, and, once the completion is sealed, what limits need to know. The proof is sealed
 * into the last frame when the gateway has sent what it knows of it.
 */
export async function serveEncrypted(
  { core, ring, waiters }: EncryptedCore,
  {
    call,
    request,
    response,
  }: {
    readonly call: EncryptedCall
    readonly request: IncomingMessage
    readonly response: ServerResponse
  },
): Promise<void> {
  const opened = await openCall(request, { call, ring, space: core.space })
  const answer = new EncryptedAnswer(response, waiters, {
    secret: opened.secret,
    enc: Buffer.from(call.encapsulated_key, 'hex'),
  })
  let isOperators = false
  try {
    const parsed = parseRequest(opened.body)
    answer.model = parsed.model
    const provider = chooseProvider(core.providers, parsed.model)
    const chosen = chooseCredential(provider, { call, callerCredential: opened.callerCredential })
    if (chosen === null) {
      answer.refuse({
        code: 'provider_credential_missing',
        message: `This service has no key for the provider ${provider?.name}: send yours as Fine-Tune-Authorization`,
        status: 403,
      })
      return
    }
    isOperators = chosen.isOperators
    const requestBytes = weighJson(opened.body, measureJson(opened.body))
    const { credential } = chosen
    await serveCompletion(
      core,
      {
        call: { context: call.context, provider: provider?.name ?? '', credential },
        ...{ parsed, requestBytes, isEncrypted: true },
      },
      answer,
    )
  } catch (error) {
    if (!(error instanceof CallFault || error instanceof ProviderRefusal)) throw error
    answer.fail(error.fault, isOperators)
  } finally {
    answer.close()
  }
}

type ChosenCredential = { readonly credential: string | null; readonly isOperators: boolean }

/** Null when the provider needs one that is not there; only plain http needs none. */
function chooseCredential(
  provider: ProviderEntry | null,
  so: { readonly call: EncryptedCall; readonly callerCredential: string | null },
): ChosenCredential | null {
  if (so.callerCredential !== null) return { credential: so.callerCredential, isOperators: false }
  if (provider === null) return { credential: null, isOperators: false }
  const { credentials } = so.call
  const credential = Object.hasOwn(credentials, provider.name)
    ? (credentials[provider.name] ?? null)
    : null
  if (credential === null && !provider.origin.startsWith('http://')) return null
  return { credential, isOperators: credential !== null }
}

/** The answer to one encrypted call. Belongs to one response. */
class EncryptedAnswer implements AnswerPort {
  /** What was asked for; null before it was read. */
  model: string | null = null
  readonly #response: ServerResponse
  readonly #waiters: ProofWaiters
  readonly #sealer: ReturnType<typeof createFrameSealer>
  readonly #responseNonce = randomBytes(KEY_BYTES)
  #hasHead = false
  #isStream = false
  #last: string | null = null
  #keepAlive: NodeJS.Timeout | null = null

  constructor(
    response: ServerResponse,
    waiters: ProofWaiters,
    keys: { readonly secret: Uint8Array; readonly enc: Uint8Array },
  ) {
    this.#response = response
    this.#waiters = waiters
    this.#sealer = createFrameSealer({ ...keys, responseNonce: this.#responseNonce })
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
      write: (text) => this.#writeEvents(text),
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
    const text = Buffer.from(withMembers(sealed.response, members))
    for (let at = 0; at < text.length; at += FRAME_BYTES_MAX)
      this.#frame(text.subarray(at, at + FRAME_BYTES_MAX))
    this.#response.end()
  }

  async endStream(
    sealed: Sealed,
    { fault, response }: { readonly fault: CallFault | null; readonly response: JsonObject },
  ): Promise<void> {
    if (fault !== null) {
      this.#tell(
        ENCRYPTED_RECORDS.sealed,
        describe(sealed, { response, call: '', model: this.model }),
      )
      this.fail(fault.fault, false)
      return
    }
    const members = await this.#awaitProof(sealed, response)
    if (members === null) return
    this.#writeEvents(`data: ${withMembers(this.#last ?? '{}', members)}\n\ndata: [DONE]\n\n`)
    this.#response.end()
  }

  /** Answers with an error: with its status, or within the stream that has begun. */
  fail(fault: EnclaveFault, isOperators: boolean): void {
    this.#answer(answerFault(fault, isOperators), fault.code)
  }

  refuse(error: Parameters<typeof answerError>[0]): void {
    this.#answer(answerError(error), 'invalid_request')
  }

  /** Ends what goes on by itself. */
  close(): void {
    if (this.#keepAlive !== null) clearTimeout(this.#keepAlive)
    this.#keepAlive = null
  }

  #answer(
    { head, body }: { readonly head: EncryptedHead; readonly body: string },
    code: EnclaveFault['code'],
  ): void {
    const told: EncryptedFault = { code, model: this.model }
    if (this.#hasHead) {
      this.#tell(ENCRYPTED_RECORDS.fault, told)
      this.#writeEvents(`event: error\ndata: ${body}\n\n`)
    } else {
      this.#begin(head)
      this.#tell(ENCRYPTED_RECORDS.fault, told)
      this.#frame(Buffer.from(body))
    }
    this.#response.end()
  }

  /** The text of the proof's members; null when nobody waits for the answer any more. */
  async #awaitProof(sealed: Sealed, response: JsonObject): Promise<string | null> {
    const { call, proof } = this.#waiters.open()
    this.#tell(ENCRYPTED_RECORDS.sealed, describe(sealed, { response, call, model: this.model }))
    const forget = this.onGone(() => this.#waiters.forget(call))
    const known = await proof.finally(forget)
    if (known === 'gone') throw new CallerGone('the gateway closed the connection')
    if (known === 'late') {
      this.#answer(
        answerError({
          code: 'commit_delayed',
          message:
            'The completion is sealed but not stored yet: it will be in the history, unless its enclave ends first',
          status: 503,
        }),
        'not_ready',
      )
      return null
    }
    return `${sealed.members},"tx_hash":"${known.tx_hash}","log":${JSON.stringify(known.log)}`
  }

  #writeEvents(text: string): boolean {
    this.#begin({ content_type: EVENT_STREAM })
    this.#touch()
    return this.#frame(Buffer.from(text))
  }

  #touch(): void {
    if (!this.#isStream) return
    this.close()
    this.#keepAlive = setTimeout(() => this.#writeEvents(': ping\n\n'), KEEP_ALIVE_MS)
  }

  #frame(content: Uint8Array): boolean {
    return this.#record(ENCRYPTED_RECORDS.frame, this.#sealer.seal(content))
  }

  /** The head comes first; only the first call counts. */
  #begin(head: Partial<EncryptedHead> & Pick<EncryptedHead, 'content_type'>): void {
    if (this.#hasHead) return
    this.#hasHead = true
    const whole = { status: 200, retry_after_seconds: null, should_retry: true, ...head }
    this.#tell(ENCRYPTED_RECORDS.head, whole)
  }

  #tell(kind: number, content: EncryptedHead | EncryptedSealed | EncryptedFault): void {
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
}

function describe(
  { notice }: Sealed,
  so: { readonly response: JsonObject; readonly call: string; readonly model: string | null },
): EncryptedSealed {
  return { ...notice, call: so.call, model: so.model ?? '', usage: usageOf(so.response) }
}

/** Puts members into the canonical text of an object, behind its own. */
function withMembers(object: string, members: string): string {
  return object === '{}' ? `{${members}}` : `${object.slice(0, -1)},${members}}`
}
