import { setTimeout as sleep } from 'node:timers/promises'
import { buildConnector, type Dispatcher, Pool } from 'undici'
import { RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import {
  type AnchorProof,
  type BootStatementReply,
  type BootStatementRequest,
  CALL_HEADER,
  COMPLETION_BYTES_MAX,
  type CompletionCall,
  callPath,
  ENCLAVE_PATHS,
  type EnclaveFault,
  type EncryptedCall,
  type HeadAttestationReply,
  type HeadAttestationRequest,
  type Identity,
  type PullReply,
  type PullRequest,
  type SealedNotice,
} from '#enclave/protocol/enclave-api.ts'
import type { PassedBody } from '../api/read-body.ts'
import { memoryLimitBytes } from '../runtime/memory.ts'
import { checkedConnector } from './connection-check.ts'
import { EnclaveError, enclaveErrorOf } from './enclave-errors.ts'
import {
  type EnclaveEvent,
  parseAttestationReply,
  parseBootStatementReply,
  parseFault,
  parseHeadAttestationReply,
  parseIdentity,
  parsePullReply,
  parseSealedNotice,
  readEnclaveEvents,
} from './enclave-replies.ts'
import { type EncryptedAnswer, readEncryptedEvents } from './encrypted-answer.ts'

/** A stream is read while `events` is iterated. */
export type CompletionAnswer =
  | { readonly kind: 'sealed'; readonly notice: SealedNotice }
  | { readonly kind: 'stream'; readonly events: AsyncIterable<EnclaveEvent> }
  | { readonly kind: 'fault'; readonly fault: EnclaveFault }

const MIB = 1024 * 1024

/** How long an identity is reused. A renewed document is visible after this time at the latest. */
export const IDENTITY_AGE_MAX_MS = 5_000

const CONNECT_TIMEOUT_MS = 2_000

/**
 * Time limit until an answer's first byte, and between its bytes. The enclave's timeouts for
 * providers are shorter by default, and have their own errors: a whole answer has an hour.
 */
const COMPLETION_TIMEOUT_MS = 65 * 60_000

/** Timeout of an attestation. The timeout of a pull is this time plus `wait_ms`. */
const CONTROL_TIMEOUT_MS = 10_000

/** An enclave without an answer in this time counts as unreachable. */
const IDENTITY_TIMEOUT_MS = 5_000

/**
 * Returns the limit of one pull of completions for a process with this memory. Storing the pull
 * needs several times the limit. A process with little memory pulls fewer completions at once, but
 * at least one of any size.
 */
export function replyBytesMax(memoryBytes: number): number {
  // The head, a document and the other members of a completion take less than 1 MiB.
  return Math.min(256 * MIB, Math.max(COMPLETION_BYTES_MAX + MIB, Math.floor(memoryBytes / 8)))
}

/** Maximum size of an identity, notice, fault or document. */
const SMALL_REPLY_BYTES_MAX = 1024 * 1024

/** An unused connection stays open for this time, unless the enclave asks for less. */
const KEEP_ALIVE_MS = 30_000

type EnclaveClientOptions = {
  /** Absolute path of the Unix socket. */
  readonly socketPath: string
  /**
   * Maximum number of simultaneous calls. The gateway refuses further calls, because they would
   * wait here uncounted.
   */
  readonly callsMax: number
  /** Number of gateway processes that share the memory. Default: 1. */
  readonly processes?: number
  /** Milliseconds of a clock that is never set. Default: the process's monotonic clock. */
  readonly now?: () => number
  /** Default: IDENTITY_TIMEOUT_MS. */
  readonly identityTimeoutMs?: number
  /** The notary of the only enclave that may get completion calls. Default: every enclave may. */
  readonly expectedNotary?: () => string | null
  /** True if identity() may return this identity. Default: every identity. */
  readonly isFollowed?: (identity: Identity) => Promise<boolean>
  /** Called when the enclave has started to answer. */
  readonly onReply?: () => void
}

/** Sends nothing before the first call. Throws EnclaveError, or an aborted signal's reason. */
export class EnclaveClient {
  readonly #options: EnclaveClientOptions
  readonly #completions: Pool
  /** A separate pool: pulls must not wait for completions, because completions wait for pulls. */
  readonly #control: Pool
  readonly #now: () => number
  readonly #pullBytesMax: number
  #known: { readonly identity: Promise<Identity>; readonly atMs: number } | null = null
  #lastPulled: Pick<PullReply, 'notary' | 'public_key'> | null = null
  /** True if this process will end the enclave. */
  #isEnding = false

  constructor(options: EnclaveClientOptions) {
    const { socketPath, callsMax, expectedNotary } = options
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#pullBytesMax = replyBytesMax(memoryLimitBytes(options.processes ?? 1))
    const connect = buildConnector({ socketPath, timeout: CONNECT_TIMEOUT_MS })
    this.#completions = openPool(
      expectedNotary === undefined ? connect : checkedConnector({ connect, expectedNotary }),
      {
        connections: callsMax,
        headersTimeout: COMPLETION_TIMEOUT_MS,
        bodyTimeout: COMPLETION_TIMEOUT_MS,
      },
    )
    this.#control = openPool(
      { socketPath, timeout: CONNECT_TIMEOUT_MS },
      { maxResponseSize: this.#pullBytesMax },
    )
  }

  /**
   * Returns an identity that is at most IDENTITY_AGE_MAX_MS old. Throws EnclaveError `unavailable`
   * if `isFollowed` returns false for the identity.
   */
  async identity(): Promise<Identity> {
    const { isFollowed = async () => true } = this.#options
    const identity = await this.#shareIdentity()
    if (await isFollowed(identity)) return identity
    throw new EnclaveError('unavailable', 'the enclave that answers was not accepted')
  }

  /** Returns the identity of the enclave that answers now, without the check of `isFollowed`. */
  askIdentity(): Promise<Identity> {
    this.forgetIdentity()
    return this.#shareIdentity()
  }

  /** Makes the next call of identity() ask the enclave again. */
  forgetIdentity(): void {
    this.#known = null
  }

  /** `body` has the caller's exact bytes. Aborting also ends the provider's call. */
  async complete(
    call: CompletionCall,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<CompletionAnswer> {
    try {
      const reply = await this.#completions.request({
        method: 'POST',
        path: callPath(ENCLAVE_PATHS.completions, call.dialect ?? 'chat'),
        headers: callHeaders('application/json', call),
        body,
        signal,
      })
      this.#options.onReply?.()
      const isWhole = reply.statusCode === 200
      if (isWhole && String(reply.headers['content-type']).startsWith('text/event-stream'))
        return { kind: 'stream', events: readEnclaveEvents(reply.body, signal) }
      const value = await readJson(reply, SMALL_REPLY_BYTES_MAX)
      return isWhole
        ? { kind: 'sealed', notice: parseSealedNotice(value) }
        : { kind: 'fault', fault: parseFault(value) }
    } catch (error) {
      throw this.#failureOf(error, signal)
    }
  }

  /**
   * Sends the frames as they arrive. Aborting also ends the provider's call. If a fault of the body
   * ended the call, throws that fault.
   */
  async encrypted(
    call: EncryptedCall,
    body: Pick<PassedBody, 'stream' | 'fault'>,
    signal: AbortSignal,
  ): Promise<EncryptedAnswer> {
    try {
      const reply = await this.#completions.request({
        method: 'POST',
        path: callPath(ENCLAVE_PATHS.encrypted, call.dialect ?? 'chat'),
        headers: callHeaders('application/octet-stream', call),
        body: body.stream,
        signal,
      })
      this.#options.onReply?.()
      const nonce = reply.headers[RESPONSE_NONCE_HEADER]
      if (reply.statusCode === 200 && typeof nonce === 'string' && /^[0-9a-f]{64}$/.test(nonce))
        return {
          kind: 'answer',
          responseNonce: nonce,
          events: readEncryptedEvents(reply.body, signal),
        }
      const fault = parseFault(await readJson(reply, SMALL_REPLY_BYTES_MAX))
      return { kind: 'fault', fault }
    } catch (error) {
      // If a caller stops its upload, the enclave is not at fault.
      throw body.fault() ?? this.#failureOf(error, signal)
    }
  }

  /** False if no encrypted call waits for the proof. */
  async giveProof(proof: AnchorProof, signal: AbortSignal): Promise<boolean> {
    const isGiven = () => true
    try {
      return await this.#ask(isGiven, {
        path: ENCLAVE_PATHS.encryptedProof,
        request: proof,
        signal,
      })
    } catch (error) {
      if (error instanceof EnclaveError && error.code === 'refused') return false
      throw error
    }
  }

  /**
   * Returns unacknowledged completions, after at most request.wait_ms. After `expectEnd`, an
   * enclave ends when all its completions are committed. So if the enclave is then unreachable,
   * returns an empty reply.
   */
  async pull(request: PullRequest, signal: AbortSignal): Promise<PullReply> {
    const limits = { timeoutMs: request.wait_ms + CONTROL_TIMEOUT_MS, bytesMax: this.#pullBytesMax }
    const question = { path: ENCLAVE_PATHS.pull, request, signal, ...limits }
    try {
      const reply = await this.#ask(parsePullReply, question)
      this.#lastPulled = { notary: reply.notary, public_key: reply.public_key }
      return reply
    } catch (error) {
      if (!this.#isEnding || this.#lastPulled === null || signal.aborted) throw error
      await sleep(request.wait_ms, undefined, { signal })
      return { ...this.#lastPulled, head: null, completions: [], documents: {} }
    }
  }

  /** Call this before this process ends the enclave normally. */
  expectEnd(): void {
    this.#isEnding = true
  }

  /** A fresh document (base64) over the caller's nonce, 16 to 64 bytes as hex. */
  attestation(nonce: string): Promise<string> {
    return this.#ask(parseAttestationReply, { path: `${ENCLAVE_PATHS.attestation}?nonce=${nonce}` })
  }

  /** Returns a document over the log's root and the block's hash (0x, lower case). */
  attestHead(blockHash: string, signal: AbortSignal): Promise<HeadAttestationReply> {
    const request: HeadAttestationRequest = { block_hash: blockHash }
    return this.#ask(parseHeadAttestationReply, { path: ENCLAVE_PATHS.attestHead, request, signal })
  }

  /**
   * An enclave makes only one statement about other logs' heads. Later calls return the same
   * statement.
   */
  stateBoot(heads: readonly BootHead[]): Promise<BootStatementReply> {
    const request: BootStatementRequest = { heads }
    return this.#ask(parseBootStatementReply, { path: ENCLAVE_PATHS.bootStatement, request })
  }

  /** Running calls then fail. */
  async close(): Promise<void> {
    await Promise.all([this.#completions.destroy(), this.#control.destroy()])
  }

  #shareIdentity(): Promise<Identity> {
    const known = this.#known
    if (known !== null && this.#now() - known.atMs < IDENTITY_AGE_MAX_MS) return known.identity
    const { identityTimeoutMs: timeoutMs = IDENTITY_TIMEOUT_MS } = this.#options
    const identity = this.#ask(parseIdentity, { path: ENCLAVE_PATHS.identity, timeoutMs })
    const entry = { identity, atMs: this.#now() }
    this.#known = entry
    // A failed request is forgotten, so that the next call asks again.
    identity.catch(() => {
      if (this.#known === entry) this.#known = null
    })
    return identity
  }

  /** Throws EnclaveError `refused` for any status except 200. */
  async #ask<Value>(
    parse: (value: unknown) => Value,
    {
      path,
      request,
      signal,
      timeoutMs = CONTROL_TIMEOUT_MS,
      bytesMax = SMALL_REPLY_BYTES_MAX,
    }: Question,
  ): Promise<Value> {
    const json = { headers: { 'content-type': 'application/json' }, body: JSON.stringify(request) }
    try {
      const reply = await this.#control.request({
        path,
        ...(request === undefined ? { method: 'GET' } : { method: 'POST', ...json }),
        headersTimeout: timeoutMs,
        bodyTimeout: timeoutMs,
        ...(signal === undefined ? {} : { signal }),
      })
      this.#options.onReply?.()
      const value = await readJson(reply, bytesMax)
      if (reply.statusCode === 200) return parse(value)
      const fault = parseFault(value)
      throw new EnclaveError('refused', `the enclave refused a call (${fault.code})`, fault)
    } catch (error) {
      throw this.#failureOf(error, signal)
    }
  }

  /** Forgets the stored identity, because another enclave may answer after a fault. */
  #failureOf(error: unknown, signal: AbortSignal | undefined): unknown {
    const failure = enclaveErrorOf(error, signal)
    if (failure instanceof EnclaveError) this.forgetIdentity()
    return failure
  }
}

function openPool(connect: Pool.Options['connect'], options: Pool.Options): Pool {
  return new Pool('http://enclave', {
    ...(connect === undefined ? {} : { connect }),
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    allowH2: false,
    ...options,
  })
}

type Question = {
  readonly path: string
  /** The JSON body of a POST. Default: GET without a body. */
  readonly request?: object
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
  readonly bytesMax?: number
}

function callHeaders(contentType: string, call: CompletionCall | EncryptedCall) {
  const header = Buffer.from(JSON.stringify(call)).toString('base64url')
  return { 'content-type': contentType, [CALL_HEADER]: header }
}

/** Checks the stated length, which is trusted. Every answer except a stream states its length. */
async function readJson(reply: Dispatcher.ResponseData, bytesMax: number): Promise<unknown> {
  if (Number(reply.headers['content-length']) > bytesMax) {
    reply.body.on('error', () => {}).destroy()
    throw new EnclaveError('reply_too_large', `expected an answer of at most ${bytesMax} bytes`)
  }
  try {
    return await reply.body.json()
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new EnclaveError('protocol', 'the enclave answered what is not JSON')
    throw error
  }
}
