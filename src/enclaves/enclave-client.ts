import { type buildConnector, Pool } from 'undici'
import type { BootHead } from '../../attestation/evidence/boot-statement.ts'
import {
  type BootStatementReply,
  type BootStatementRequest,
  CALL_HEADER,
  type CompletionCall,
  ENCLAVE_PATHS,
  type EnclaveFault,
  type HeadAttestationReply,
  type HeadAttestationRequest,
  type Identity,
  type PullReply,
  type PullRequest,
  type SealedNotice,
} from '../../enclave/protocol/messages.ts'
import { createCheckedConnector } from './checked-connector.ts'
import { EnclaveError, enclaveErrorOf } from './enclave-error.ts'
import { type EnclaveEvent, readEnclaveEvents } from './enclave-events.ts'
import {
  parseAttestationReply,
  parseBootStatementReply,
  parseFault,
  parseHeadAttestationReply,
  parseIdentity,
  parsePullReply,
  parseSealedNotice,
} from './enclave-replies.ts'

/** What the enclave answers a completion call with. The bytes of a stream are read as `events` is iterated. */
export type CompletionAnswer =
  | { readonly kind: 'sealed'; readonly notice: SealedNotice }
  | { readonly kind: 'stream'; readonly events: AsyncIterable<EnclaveEvent> }
  | { readonly kind: 'fault'; readonly fault: EnclaveFault }

/** The enclave, as the gateway calls it. Methods throw EnclaveError, or the signal's reason once it is aborted. */
export type EnclaveClient = {
  /** Who the enclave is. At most IDENTITY_AGE_MAX_MS old; asked anew after the enclave was out of reach. */
  identity(): Promise<Identity>
  /** Forgets the identity, so that the next identity() asks for it. */
  forgetIdentity(): void
  /** Sends a caller's exact bytes. Aborting the signal, at any time until the events end, ends the provider's call. */
  complete(call: CompletionCall, body: Uint8Array, signal: AbortSignal): Promise<CompletionAnswer>
  /** Completions that are not acknowledged yet. Waits for at most request.wait_ms in the enclave. */
  pull(request: PullRequest, signal: AbortSignal): Promise<PullReply>
  /** A fresh attestation document (base64) over the caller's nonce, 16 to 64 bytes as hex. */
  attestation(nonce: string): Promise<string>
  /** All leaves that the log has now, their root, and a document over both and the block's hash (0x, lower case). */
  attestHead(blockHash: string, signal: AbortSignal): Promise<HeadAttestationReply>
  /** What the enclave states of heads of other logs: these, when nobody showed it any before. */
  stateBoot(heads: readonly BootHead[]): Promise<BootStatementReply>
  /** Ends all connections; calls under way fail. */
  close(): Promise<void>
}

/** How long a known identity is trusted to be the current one, milliseconds: a renewed document shows by then. */
export const IDENTITY_AGE_MAX_MS = 5_000

/** Until a connection to the local socket stands. */
export const CONNECT_TIMEOUT_MS = 2_000

/**
 * Until the enclave's first byte, and between its bytes. Only a net below the enclave's own timeouts for providers
 * (first byte, idle), which are shorter and have an error of their own.
 */
export const COMPLETION_TIMEOUT_MS = 15 * 60_000

/** Identity, attestation, and what a pull may take beyond its own waiting. */
export const CONTROL_TIMEOUT_MS = 10_000

/** Largest answer that is held as a whole: one pull of many completions. */
export const REPLY_BYTES_MAX = 256 * 1024 * 1024

/** Largest identity, notice, fault or document. */
export const SMALL_REPLY_BYTES_MAX = 1024 * 1024

/** Unused connections are kept this long; the enclave's own hint shortens it. */
const KEEP_ALIVE_MS = 30_000

/**
 * Client of the enclave that listens on the Unix socket `socketPath`. At most `callsMax` completion calls run at once
 * (more would queue unseen: the gateway refuses them before). `now` gives milliseconds of a clock
 * that is never set. Nothing is sent before the
 * first call.
 */
export function createEnclaveClient(options: {
  /** Absolute. */
  readonly socketPath: string
  readonly callsMax: number
  /** Whether completion calls may go to the enclave that answers on a new connection. Default: to whichever does. */
  readonly isExpected?: (identity: Identity) => boolean
  readonly now: () => number
}): EnclaveClient {
  const { socketPath, isExpected } = options
  const connect = { socketPath, timeout: CONNECT_TIMEOUT_MS }
  const checked =
    isExpected && createCheckedConnector({ socketPath, timeoutMs: CONNECT_TIMEOUT_MS, isExpected })
  const completions = openPool(checked ?? connect, options.callsMax, {
    headersTimeout: COMPLETION_TIMEOUT_MS,
    bodyTimeout: COMPLETION_TIMEOUT_MS,
  })
  // Of its own, so that no flood of completions can keep a pull waiting: the answers of all of them wait for pulls.
  const control = openPool(connect, null, { maxResponseSize: REPLY_BYTES_MAX })
  const identity = cacheIdentity(
    async () => parseIdentity(await fetchControl(control, ENCLAVE_PATHS.identity)),
    options.now,
  )

  async function forgetting<Value>(run: () => Promise<Value>): Promise<Value> {
    try {
      return await run()
    } catch (error) {
      if (error instanceof EnclaveError) identity.forget()
      throw error
    }
  }

  return {
    identity: () => identity.get(),
    forgetIdentity: () => identity.forget(),
    complete: (call, body, signal) => forgetting(() => sendCompletion(completions, { call, body, signal })),
    pull: (request, signal) => forgetting(() => sendPull(control, request, signal)),
    attestation: (nonce) =>
      forgetting(async () =>
        parseAttestationReply(await fetchControl(control, `${ENCLAVE_PATHS.attestation}?nonce=${nonce}`)),
      ),
    attestHead: (blockHash, signal) =>
      forgetting(async () => {
        const request: HeadAttestationRequest = { block_hash: blockHash }
        return parseHeadAttestationReply(
          await postControl(control, ENCLAVE_PATHS.attestHead, { request, signal }),
        )
      }),
    stateBoot: (heads) =>
      forgetting(async () => {
        const request: BootStatementRequest = { heads }
        return parseBootStatementReply(await postControl(control, ENCLAVE_PATHS.bootStatement, { request }))
      }),
    close: async () => {
      await Promise.all([completions.destroy(), control.destroy()])
    },
  }
}

function openPool(
  connect: buildConnector.BuildOptions | buildConnector.connector,
  connections: number | null,
  options: Pool.Options,
): Pool {
  return new Pool('http://enclave', {
    connections,
    connect,
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    allowH2: false,
    ...options,
  })
}

async function sendCompletion(
  pool: Pool,
  {
    call,
    body,
    signal,
  }: { readonly call: CompletionCall; readonly body: Uint8Array; readonly signal: AbortSignal },
): Promise<CompletionAnswer> {
  const header = Buffer.from(JSON.stringify(call)).toString('base64url')
  const reply = await send(pool, {
    method: 'POST',
    path: ENCLAVE_PATHS.completions,
    headers: { 'content-type': 'application/json', [CALL_HEADER]: header },
    body,
    signal,
  })
  const isStream =
    reply.statusCode === 200 && String(reply.headers['content-type']).startsWith('text/event-stream')
  if (isStream) return { kind: 'stream', events: readEnclaveEvents(reply.body, signal) }
  const value = await readJson(reply, SMALL_REPLY_BYTES_MAX, signal)
  return reply.statusCode === 200
    ? { kind: 'sealed', notice: parseSealedNotice(value) }
    : { kind: 'fault', fault: parseFault(value) }
}

async function sendPull(pool: Pool, request: PullRequest, signal: AbortSignal): Promise<PullReply> {
  const timeoutMs = request.wait_ms + CONTROL_TIMEOUT_MS
  const reply = await send(pool, {
    method: 'POST',
    path: ENCLAVE_PATHS.pull,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    signal,
  })
  return parsePullReply(await readSuccess(reply, REPLY_BYTES_MAX, signal))
}

async function postControl(
  pool: Pool,
  path: string,
  { request, signal }: { readonly request: object; readonly signal?: AbortSignal },
): Promise<unknown> {
  const reply = await send(pool, {
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    headersTimeout: CONTROL_TIMEOUT_MS,
    bodyTimeout: CONTROL_TIMEOUT_MS,
    ...(signal === undefined ? {} : { signal }),
  })
  return readSuccess(reply, SMALL_REPLY_BYTES_MAX, signal)
}

async function fetchControl(pool: Pool, path: string): Promise<unknown> {
  const timeouts = { headersTimeout: CONTROL_TIMEOUT_MS, bodyTimeout: CONTROL_TIMEOUT_MS }
  return readSuccess(await send(pool, { method: 'GET', path, ...timeouts }), SMALL_REPLY_BYTES_MAX)
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

async function readSuccess(reply: Reply, bytesMax: number, signal?: AbortSignal): Promise<unknown> {
  const value = await readJson(reply, bytesMax, signal)
  if (reply.statusCode === 200) return value
  const fault = parseFault(value)
  throw new EnclaveError('refused', `the enclave refused a call (${fault.code})`, fault)
}

/** The limit is checked against the length that the enclave, which is trusted, gives with whatever is no stream. */
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

/** One fetch at a time, whoever asks; the answer serves for IDENTITY_AGE_MAX_MS, a failure for nobody else. */
function cacheIdentity(fetchIdentity: () => Promise<Identity>, now: () => number) {
  let known: { readonly identity: Promise<Identity>; readonly atMs: number } | null = null
  return {
    get(): Promise<Identity> {
      if (known && now() - known.atMs < IDENTITY_AGE_MAX_MS) return known.identity
      const entry = { identity: fetchIdentity(), atMs: now() }
      known = entry
      entry.identity.catch(() => {
        if (known === entry) known = null
      })
      return entry.identity
    },
    forget(): void {
      known = null
    },
  }
}
