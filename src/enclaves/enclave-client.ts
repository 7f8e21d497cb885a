import { buildConnector, Pool } from 'undici'
import { RESPONSE_NONCE_HEADER } from '../../attestation/ehbp.ts'
import type { BootHead } from '../../attestation/evidence/boot-statement.ts'
import {
  type AnchorProof,
  type BootStatementReply,
  type BootStatementRequest,
  CALL_HEADER,
  type CompletionCall,
  ENCLAVE_PATHS,
  type EnclaveFault,
  type EncryptedCall,
  type HeadAttestationReply,
  type HeadAttestationRequest,
  type Identity,
  type PullReply,
  type PullRequest,
  type SealedNotice,
} from '../../enclave/protocol/messages.ts'
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

/**
 * What the enclave answers a completion call with. The bytes of a stream are read as `events` is
 * iterated.
 */
export type CompletionAnswer =
  | { readonly kind: 'sealed'; readonly notice: SealedNotice }
  | { readonly kind: 'stream'; readonly events: AsyncIterable<EnclaveEvent> }
  | { readonly kind: 'fault'; readonly fault: EnclaveFault }

const MIB = 1024 * 1024

/**
 * How long a known identity is trusted to be the current one, milliseconds: a renewed document
 * shows by then.
 */
export const IDENTITY_AGE_MAX_MS = 5_000

/** Until a connection to the local socket stands. */
const CONNECT_TIMEOUT_MS = 2_000

/**
 * Until the enclave's first byte, and between its bytes. Only a net below the enclave's own
 * timeouts for providers (first byte, idle), which are shorter and have an error of their own.
 */
const COMPLETION_TIMEOUT_MS = 15 * 60_000

/** Attestation, and what a pull may take beyond its own waiting. */
const CONTROL_TIMEOUT_MS = 10_000

/** The identity is at hand: an enclave that does not say who it is by then is out of reach. */
const IDENTITY_TIMEOUT_MS = 5_000

/**
 * Largest answer that is held as a whole: one pull of many completions. Several times that is
 * needed until they are stored, so a small process takes fewer at once; one completion fits.
 */
const REPLY_BYTES_MAX = Math.min(256 * MIB, Math.max(64 * MIB, Math.floor(memoryLimitBytes() / 8)))

/** Largest identity, notice, fault or document. */
const SMALL_REPLY_BYTES_MAX = 1024 * 1024

/** Unused connections are kept this long; the enclave's own hint shortens it. */
const KEEP_ALIVE_MS = 30_000

export type EnclaveClientOptions = {
  /** Absolute path of the Unix socket. */
  readonly socketPath: string
  /**
   * Completion calls that run at once. More would queue unseen: the gateway refuses them before.
   */
  readonly callsMax: number
  /** Milliseconds of a clock that is never set. Default: that of this process. */
  readonly now?: () => number
  /** Default: IDENTITY_TIMEOUT_MS. */
  readonly identityTimeoutMs?: number
}

/**
 * What can be asked of the enclave that listens on a Unix socket. Nothing is sent before the first
 * call. Methods throw EnclaveError, or the signal's reason once it is aborted.
 */
export class EnclaveClient {
  readonly socketPath: string
  readonly #completions: Pool
  /**
   * Of its own, so that no flood of completions can keep a pull waiting: the answers of all of them
   * wait for pulls.
   */
  readonly #control: Pool
  readonly #now: () => number
  readonly #identityTimeoutMs: number
  #known: { readonly identity: Promise<Identity>; readonly atMs: number } | null = null

  constructor({
    socketPath,
    callsMax,
    now = () => performance.now(),
    identityTimeoutMs = IDENTITY_TIMEOUT_MS,
  }: EnclaveClientOptions) {
    this.socketPath = socketPath
    this.#identityTimeoutMs = identityTimeoutMs
    this.#now = now
    this.#completions = openPool(
      checkedConnector({
        connect: buildConnector({ socketPath, timeout: CONNECT_TIMEOUT_MS }),
        isExpected: (identity) => this.isExpected(identity),
      }),
      {
        connections: callsMax,
        headersTimeout: COMPLETION_TIMEOUT_MS,
        bodyTimeout: COMPLETION_TIMEOUT_MS,
      },
    )
    this.#control = openPool(
      { socketPath, timeout: CONNECT_TIMEOUT_MS },
      { maxResponseSize: REPLY_BYTES_MAX },
    )
  }

  /**
   * Whether completion calls may go to the enclave that answers on a new connection: here, to
   * whichever does.
   */
  protected isExpected(_: Identity): boolean {
    return true
  }

  /**
   * Who the enclave is. At most IDENTITY_AGE_MAX_MS old; asked anew after the enclave was out of
   * reach. One is fetched at a time, whoever asks.
   */
  identity(): Promise<Identity> {
    const known = this.#known
    if (known !== null && this.#now() - known.atMs < IDENTITY_AGE_MAX_MS) return known.identity
    const entry = { identity: this.#fetchIdentity(), atMs: this.#now() }
    this.#known = entry
    // A failure serves nobody else.
    entry.identity.catch(() => {
      if (this.#known === entry) this.#known = null
    })
    return entry.identity
  }

  /** Forgets the identity, so that the next identity() asks for it. */
  forgetIdentity(): void {
    this.#known = null
  }

  /**
   * Sends a caller's exact bytes. Aborting the signal, at any time until the events end, ends the
   * provider's call.
   */
  async complete(
    call: CompletionCall,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<CompletionAnswer> {
    const header = Buffer.from(JSON.stringify(call)).toString('base64url')
    try {
      const reply = await send(this.#completions, {
        method: 'POST',
        path: ENCLAVE_PATHS.completions,
        headers: { 'content-type': 'application/json', [CALL_HEADER]: header },
        body,
        signal,
      })
      const isWhole = reply.statusCode === 200
      if (isWhole && String(reply.headers['content-type']).startsWith('text/event-stream'))
        return { kind: 'stream', events: readEnclaveEvents(reply.body, signal) }
      const value = await readJson(reply, SMALL_REPLY_BYTES_MAX, signal)
      return isWhole
        ? { kind: 'sealed', notice: parseSealedNotice(value) }
        : { kind: 'fault', fault: parseFault(value) }
    } catch (error) {
      throw this.#forgetting(error)
    }
  }

  /**
   * Sends an encrypted call's frames as they come. Aborting the signal, at any time until the
   * events end, ends the provider's call. Throws the body's own fault where that ended it.
   */
  async encrypted(
    call: EncryptedCall,
    body: Pick<PassedBody, 'stream' | 'fault'>,
    signal: AbortSignal,
  ): Promise<EncryptedAnswer> {
    const header = Buffer.from(JSON.stringify(call)).toString('base64url')
    try {
      const reply = await send(this.#completions, {
        method: 'POST',
        path: ENCLAVE_PATHS.encrypted,
        headers: { 'content-type': 'application/octet-stream', [CALL_HEADER]: header },
        body: body.stream,
        signal,
      })
      const nonce = reply.headers[RESPONSE_NONCE_HEADER]
      if (reply.statusCode === 200 && typeof nonce === 'string' && /^[0-9a-f]{64}$/.test(nonce))
        return {
          kind: 'answer',
          responseNonce: nonce,
          events: readEncryptedEvents(reply.body, signal),
        }
      const fault = parseFault(await readJson(reply, SMALL_REPLY_BYTES_MAX, signal))
      return { kind: 'fault', fault }
    } catch (error) {
      // A caller that breaks its upload off says nothing of the enclave.
      throw body.fault() ?? this.#forgetting(error)
    }
  }

  /** Gives an encrypted call that waits for it what its proof lacks. False when none waits. */
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
   * Completions that are not acknowledged yet. Waits for at most request.wait_ms in the enclave.
   */
  pull(request: PullRequest, signal: AbortSignal): Promise<PullReply> {
    const limits = { timeoutMs: request.wait_ms + CONTROL_TIMEOUT_MS, bytesMax: REPLY_BYTES_MAX }
    return this.#ask(parsePullReply, { path: ENCLAVE_PATHS.pull, request, signal, ...limits })
  }

  /** A fresh attestation document (base64) over the caller's nonce, 16 to 64 bytes as hex. */
  attestation(nonce: string): Promise<string> {
    return this.#ask(parseAttestationReply, { path: `${ENCLAVE_PATHS.attestation}?nonce=${nonce}` })
  }

  /**
   * All leaves that the log has now, their root, and a document over both and the block's hash (0x,
   * lower case).
   */
  attestHead(blockHash: string, signal: AbortSignal): Promise<HeadAttestationReply> {
    const request: HeadAttestationRequest = { block_hash: blockHash }
    return this.#ask(parseHeadAttestationReply, { path: ENCLAVE_PATHS.attestHead, request, signal })
  }

  /** What the enclave states of heads of other logs: these, when nobody showed it any before. */
  stateBoot(heads: readonly BootHead[]): Promise<BootStatementReply> {
    const request: BootStatementRequest = { heads }
    return this.#ask(parseBootStatementReply, { path: ENCLAVE_PATHS.bootStatement, request })
  }

  /** Ends all connections; calls under way fail. */
  async close(): Promise<void> {
    await Promise.all([this.#completions.destroy(), this.#control.destroy()])
  }

  async #fetchIdentity(): Promise<Identity> {
    const question = { path: ENCLAVE_PATHS.identity, timeoutMs: this.#identityTimeoutMs }
    return parseIdentity(await ask(this.#control, question))
  }

  async #ask<Value>(parse: (value: unknown) => Value, question: Question): Promise<Value> {
    try {
      return parse(await ask(this.#control, question))
    } catch (error) {
      throw this.#forgetting(error)
    }
  }

  /** After a fault it may be another enclave that answers. */
  #forgetting(error: unknown): unknown {
    if (error instanceof EnclaveError) this.forgetIdentity()
    return error
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
  /** Posted as JSON. Default: nothing, the path is only read. */
  readonly request?: object
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
  readonly bytesMax?: number
}

/** Gives the JSON of a 200. Throws EnclaveError `refused` for any other status. */
async function ask(pool: Pool, question: Question): Promise<unknown> {
  const {
    path,
    request,
    signal,
    timeoutMs = CONTROL_TIMEOUT_MS,
    bytesMax = SMALL_REPLY_BYTES_MAX,
  } = question
  const json = { headers: { 'content-type': 'application/json' }, body: JSON.stringify(request) }
  const reply = await send(pool, {
    path,
    ...(request === undefined ? { method: 'GET' } : { method: 'POST', ...json }),
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    ...(signal === undefined ? {} : { signal }),
  })
  const value = await readJson(reply, bytesMax, signal)
  if (reply.statusCode === 200) return value
  const fault = parseFault(value)
  throw new EnclaveError('refused', `the enclave refused a call (${fault.code})`, fault)
}

type Reply = Awaited<ReturnType<Pool['request']>>

async function send(
  pool: Pool,
  options: Parameters<Pool['request']>[0] & { signal?: AbortSignal },
): Promise<Reply> {
  try {
    return await pool.request(options)
  } catch (error) {
    throw enclaveErrorOf(error, options.signal)
  }
}

/**
 * The limit is checked against the length that the enclave, which is trusted, gives with whatever
 * is no stream.
 */
async function readJson(reply: Reply, bytesMax: number, signal?: AbortSignal): Promise<unknown> {
  if (Number(reply.headers['content-length']) > bytesMax) {
    reply.body.on('error', () => {}).destroy()
    throw new EnclaveError('reply_too_large', `expected an answer of at most ${bytesMax} bytes`)
  }
  try {
    return await reply.body.json()
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new EnclaveError('protocol', 'the enclave answered what is not JSON')
    throw enclaveErrorOf(error, signal)
  }
}
