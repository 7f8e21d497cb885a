import type { Socket } from 'node:net'
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
import { asError } from '../api/errors.ts'
import type { PassedBody } from '../api/read-body.ts'
import { memoryLimitBytes } from '../runtime/memory.ts'
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

/**
 * Until a connection to the local socket stands, and until what answers there has said who it is.
 */
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

/** Largest identity that is read of a new connection, headers included, bytes. */
export const CONNECTION_REPLY_BYTES_MAX = 1024 * 1024

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
      connectChecked(socketPath, (identity) => this.isExpected(identity)),
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

/**
 * Connects to the socket, asks on each new connection who answers there, and gives the connection
 * only when `isExpected` takes that identity. Another process may listen there since the enclave
 * was checked, also while the old one lives; what is sent over a connection that was given goes to
 * the one that was checked. Fails with EnclaveError, nothing sent.
 *
 * Does NOT check the identity itself: whoever is behind the socket could say that it is another.
 */
function connectChecked(
  socketPath: string,
  isExpected: (identity: Identity) => boolean,
): buildConnector.connector {
  const connect = buildConnector({ socketPath, timeout: CONNECT_TIMEOUT_MS })
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null)
        return
      }
      checkConnection(socket, isExpected).then(
        () => callback(null, socket),
        (fault: unknown) => {
          socket.on('error', () => undefined).destroy()
          callback(unsent(fault), null)
        },
      )
    })
  }
}

async function checkConnection(
  socket: Socket,
  isExpected: (identity: Identity) => boolean,
): Promise<void> {
  const reply = await askOnce(
    socket,
    `GET ${ENCLAVE_PATHS.identity} HTTP/1.1\r\nhost: enclave\r\n\r\n`,
  )
  const value: unknown = JSON.parse(reply.body)
  if (reply.status !== 200)
    throw new EnclaveError('refused', 'the enclave refused to say who it is', parseFault(value))
  if (!isExpected(parseIdentity(value)))
    throw new EnclaveError(
      'unavailable',
      'another enclave answers at the socket than the one that was checked',
    )
}

type RawReply = { readonly status: number; readonly body: string }

/**
 * Sends a request and reads its reply, to its last byte and no further. Leaves no listener behind.
 */
function askOnce(socket: Socket, request: string): Promise<RawReply> {
  const { promise, resolve, reject } = Promise.withResolvers<RawReply>()
  let received = Buffer.alloc(0)
  const read = () => {
    for (let part = socket.read(); part !== null; part = socket.read())
      received = Buffer.concat([received, part])
    try {
      const reply = parseRawReply(received)
      if (reply !== null) resolve(reply)
    } catch (error) {
      reject(error)
    }
  }
  const fail = (error: Error) => reject(error)
  const end = () => reject(new EnclaveError('unavailable', 'the enclave closed a new connection'))
  const late = () =>
    reject(new EnclaveError('timeout', 'the enclave did not say in time who it is'))
  const timer = setTimeout(late, CONNECT_TIMEOUT_MS)
  socket.on('readable', read).on('error', fail).on('close', end)
  socket.write(request)
  return promise.finally(() => {
    clearTimeout(timer)
    socket.off('readable', read).off('error', fail).off('close', end)
  })
}

const HEADERS_END = '\r\n\r\n'

/** Null while it is not whole. Throws EnclaveError `protocol` and `reply_too_large`. */
function parseRawReply(received: Buffer): RawReply | null {
  if (received.length > CONNECTION_REPLY_BYTES_MAX)
    throw new EnclaveError('reply_too_large', 'the enclave answered more than the limit')
  const end = received.indexOf(HEADERS_END)
  if (end < 0) return null
  const headers = received.toString('latin1', 0, end)
  const [, status] = /^HTTP\/1\.1 (\d{3})/.exec(headers) ?? []
  const [, length] = /\r\ncontent-length: *(\d{1,9})(\r\n|$)/i.exec(headers) ?? []
  if (status === undefined || length === undefined)
    throw new EnclaveError(
      'protocol',
      'the enclave answered a new connection with something else than HTTP',
    )
  const from = end + HEADERS_END.length
  const body = received.subarray(from)
  if (body.length > Number(length))
    throw new EnclaveError(
      'protocol',
      'the enclave answered a new connection with more than was asked',
    )
  if (body.length < Number(length)) return null
  return { status: Number(status), body: body.toString('utf8') }
}

/** Nothing of a call was sent over a connection that was never given. */
function unsent(fault: unknown): Error {
  const error =
    fault instanceof SyntaxError
      ? new EnclaveError('protocol', 'the enclave answered what is not JSON')
      : enclaveErrorOf(fault)
  if (!(error instanceof EnclaveError)) return asError(error)
  return new EnclaveError(error.code, error.message, error.fault, { wasSent: false })
}
