import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { DIALECT_NAMES } from '#attestation/dialects/dialect-names.ts'
import { headAttestationUserData } from '#attestation/evidence/head-attestation.ts'
import { measureJson } from '#attestation/json/json-size.ts'
import { BOOT_STATEMENT_BYTES_MAX, type BootStatementKeeper } from './boot-statement.ts'
import { CallerGone, CallFault, faultOf, logFull } from './call-fault.ts'
import { sendFault as answerFault, plainPort } from './calls/answer-port.ts'
import { CALL_FORMS, type CallForm } from './calls/call-forms.ts'
import {
  decodeAnchorProof,
  decodeCall,
  decodeEncryptedCall,
  decodeHeadAttestationRequest,
  decodePull,
} from './calls/decode-call.ts'
import { parseRequest } from './calls/parse-request.ts'
import { type CompletionCore, serveCompletion } from './calls/serve-completion.ts'
import { type EncryptedCore, serveEncrypted } from './encryption/serve-encrypted.ts'
import { readRequest, sendJson } from './http-messages.ts'
import type { Space } from './log/memory-budget.ts'
import { weighJson } from './log/weigh-json.ts'
import { describeError, type EventLog } from './logger.ts'
import {
  type BootConfiguration,
  CALL_HEADER,
  callPath,
  ENCLAVE_PATHS,
  type HeadAttestationReply,
  type Identity,
  REQUEST_BYTES_MAX,
} from './protocol/enclave-api.ts'

const HEAD_ATTESTATION_BYTES_MAX = 4_096

/** Size limit of a request with proofs, bytes. Each encrypted call adds about 2,000. */
const PROOFS_REQUEST_BYTES_MAX = 1024 * 1024

/** Size limit of a call's headers, bytes. CALL_HEADER contains the context and the credential. */
const HEADER_BYTES_MAX = 64 * 1024

/**
 * Time limit for a request to arrive, milliseconds. An encrypted request arrives at its caller's
 * speed. The gateway's limit is shorter (600 s).
 */
const REQUEST_TIMEOUT_MS = 610_000

/** How long an unused connection is kept, milliseconds. The gateway keeps it for a shorter time. */
const KEEP_ALIVE_MS = 120_000

export type Gate = { running: number; isClosed: boolean }

type ServerOptions = {
  readonly core: CompletionCore
  readonly encryption: Omit<EncryptedCore, 'core' | 'log'>
  readonly boot: BootConfiguration
  /** Digest of the boot configuration (digestBootConfiguration). */
  readonly configuration: Uint8Array
  readonly bootStatement: BootStatementKeeper
  readonly gate: Gate
  readonly publicKey: string
  readonly log: EventLog
}

/**
 * The server for ENCLAVE_PATHS. It does not listen yet. It trusts every request, so only the
 * gateway may reach it.
 */
export function createEnclaveServer(options: ServerOptions): Server {
  const settings = {
    maxHeaderSize: HEADER_BYTES_MAX,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
  }
  return createServer(settings, (request, response) => {
    // This event means that the gateway closed the connection.
    response.on('error', () => undefined)
    serve(options, request, response).catch((error: unknown) =>
      sendFault(options.log, response, error),
    )
  })
}

async function serve(
  options: ServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://enclave')
  const called = request.method === 'POST' ? CALLS.get(pathname) : undefined
  if (called !== undefined) return called.serve(options, { request, response, form: called.form })
  switch (`${request.method} ${pathname}`) {
    case `POST ${ENCLAVE_PATHS.encryptedProof}`: {
      const proof = decodeAnchorProof(await readRequest(request, PROOFS_REQUEST_BYTES_MAX))
      if (options.encryption.waiters.give(proof)) return sendJson(response, 200, {})
      throw new CallFault('invalid_call', 'no call of this id waits for its proof', { status: 404 })
    }
    case `POST ${ENCLAVE_PATHS.pull}`:
      return pull(options, request, response)
    case `POST ${ENCLAVE_PATHS.attestHead}`:
      return sendJson(response, 200, await attestHead(options, request))
    case `POST ${ENCLAVE_PATHS.bootStatement}`: {
      const body = await readRequest(request, BOOT_STATEMENT_BYTES_MAX)
      return sendJson(response, 200, await options.bootStatement.state(body))
    }
    case `GET ${ENCLAVE_PATHS.identity}`:
      return sendJson(response, 200, describeIdentity(options))
    case `GET ${ENCLAVE_PATHS.attestation}`: {
      const nonce = decodeNonce(searchParams.get('nonce') ?? '')
      return sendJson(response, 200, {
        document: await options.core.attestation.attestNonce(nonce),
      })
    }
    default:
      throw new CallFault('invalid_call', 'expected a path and method of the protocol', {
        status: 404,
      })
  }
}

type Arrival = {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly form: CallForm
}

const CALLS = new Map(
  DIALECT_NAMES.flatMap((name) => {
    const form = CALL_FORMS[name]
    return [
      [callPath(ENCLAVE_PATHS.completions, name), { serve: completions, form }] as const,
      [callPath(ENCLAVE_PATHS.encrypted, name), { serve: encrypted, form }] as const,
    ]
  }),
)

async function completions(
  { core, gate }: ServerOptions,
  { request, response, form }: Arrival,
): Promise<void> {
  await throughGate(gate, core.limits.callsMax, async () => {
    const call = decodeCall(request.headers[CALL_HEADER])
    const body = await readCompletionRequest(core.space, request)
    const requestBytes = weighJson(body, measureJson(body))
    const parsed = parseRequest(body, { form, headers: call.headers })
    const arrived = { call, isEncrypted: false, parsed, requestBytes }
    await serveCompletion(core, arrived, plainPort(response))
  })
}

async function encrypted(
  { core, encryption, gate, log }: ServerOptions,
  { request, response, form }: Arrival,
): Promise<void> {
  await throughGate(gate, core.limits.callsMax, async () => {
    const call = decodeEncryptedCall(request.headers[CALL_HEADER])
    await serveEncrypted({ core, log, ...encryption }, call, { request, response, form })
  })
}

async function throughGate(gate: Gate, callsMax: number, run: () => Promise<void>): Promise<void> {
  if (gate.isClosed) throw new CallFault('not_ready', 'The enclave is shutting down.')
  if (gate.running >= callsMax) throw new CallFault('too_busy', 'Too many completions at once.')
  gate.running++
  try {
    await run()
  } finally {
    gate.running--
  }
}

/**
 * Reads the body, and reserves memory as it arrives. Throws CallFault `log_full` when memory is
 * short, and the errors of readRequest.
 */
async function readCompletionRequest(space: Space, request: IncomingMessage): Promise<Uint8Array> {
  const room = space.reserve(0)
  if (room === null) throw logFull()
  try {
    return await readRequest(request, REQUEST_BYTES_MAX, (bytes) => room.grow(2 * bytes))
  } finally {
    room.release()
  }
}

async function pull(
  options: ServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { log } = options.core
  const asked = decodePull(await readRequest(request, PROOFS_REQUEST_BYTES_MAX))
  for (const proof of asked.proofs) options.encryption.waiters.give(proof)
  // Before the wait, so that acknowledged completions take no memory during the wait.
  log.acknowledge(asked.from)
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  await log.waitFor(asked.from, asked.wait_ms, gone.signal)
  if (!gone.signal.aborted) sendJson(response, 200, log.pull(asked))
}

/**
 * The order is part of the proof: the block's hash arrives, the head is read, the document is made.
 * So each leaf that the head lacks is newer than the block, and each leaf in the head is older than
 * the document.
 */
async function attestHead(
  { core: { account, attestation, log }, configuration }: ServerOptions,
  request: IncomingMessage,
): Promise<HeadAttestationReply> {
  const asked = decodeHeadAttestationRequest(await readRequest(request, HEAD_ATTESTATION_BYTES_MAX))
  const head = log.head()
  const document = await attestation.attestStatement({
    userData: headAttestationUserData({ configuration, notary: account.notary, ...head }),
    nonce: decodeHex(asked.block_hash),
  })
  return { size: head.size, root: encodeHex(head.root), document }
}

function describeIdentity({ core, encryption, boot, publicKey }: ServerOptions): Identity {
  const document = core.attestation.current()
  if (document === null) throw core.attestation.unavailable()
  return {
    boot_configuration: boot,
    public_key: publicKey,
    notary: core.account.notary,
    attestation: document.base64,
    encryption_keys: encryption.ring.statements(),
    log: { size: core.log.size, acknowledged: core.log.acknowledged },
  }
}

function decodeNonce(text: string): Uint8Array {
  if (/^([0-9a-fA-F]{2}){16,64}$/.test(text)) return decodeHex(text)
  throw new CallFault('invalid_call', 'expected a nonce of 16 to 64 bytes in hex')
}

function sendFault(log: EventLog, response: ServerResponse, error: unknown): void {
  if (error instanceof CallerGone) {
    response.destroy()
    return
  }
  const fault = faultOf(error)
  if (fault.code === 'internal_error') log('error', 'call failed', describeError(error))
  answerFault(response, fault)
}
