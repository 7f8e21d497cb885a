import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import type { EncryptionKey } from '#attestation/encryption-key.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import {
  type AnchorProof,
  CALL_HEADER,
  type CompletionCall,
  ENCLAVE_PATHS,
  ENCRYPTED_RECORDS,
  type EnclaveFault,
  type EncryptedCall,
  PROTOCOL_VERSION,
  type ProviderEntry,
  type PullRequest,
  type SealedNotice,
} from '#enclave/protocol/enclave-api.ts'
import { documentOf, ScriptedNotary } from './scripted-log.ts'
import { openSoftwareNsm } from './software-nsm.ts'

/** A completion call that arrived. */
export type ArrivedCall = {
  readonly call: CompletionCall
  /** Exact bytes. */
  readonly body: Buffer
  readonly response: ServerResponse
  /** Resolves when the gateway's connection is gone before the answer was complete. */
  readonly left: Promise<void>
  /**
   * Appends a completion with this response, or with these chunks of a stream, to the log, as the
   * enclave does.
   */
  seal(
    response: JsonObject,
    outcome?: Receipt['outcome'],
    chunks?: readonly JsonObject[],
  ): SealedNotice
}

/** What a scripted enclave does with a completion call. */
export type CompletionScript = (arrived: ArrivedCall) => Promise<void> | void

/** An encrypted call that arrived; its script reads the body as plain JSON. */
export type ArrivedEncrypted = {
  readonly call: EncryptedCall
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** As in ArrivedCall. */
  readonly left: Promise<void>
  /** Writes one record; an object is written as JSON. */
  record(kind: keyof typeof ENCRYPTED_RECORDS, content: object | Uint8Array): boolean
  /** Appends a completion with this request and response to the log, without their texts. */
  seal(body: Buffer, response: JsonObject, outcome?: Receipt['outcome']): SealedNotice
  /** What the gateway sends for the proof of this call, with a pull or by itself. */
  proof(call: string): Promise<AnchorProof>
}

export type EncryptedScript = (arrived: ArrivedEncrypted) => Promise<void> | void

/** The `Ehbp-Response-Nonce` of a scripted answer. */
export const SCRIPTED_NONCE = 'ab'.repeat(32)

export type ScriptedEnclave = {
  readonly socketPath: string
  readonly notary: string
  readonly calls: readonly ArrivedCall[]
  /** How often the identity was read. */
  countIdentityCalls(): number
  /** How many proofs came by themselves, and not with a pull. */
  countSingleProofs(): number
  /** Whether the proofs that come with a pull are lost on the way. Default: false. */
  setPullsLoseProofs(isLost: boolean): void
  setScript(script: CompletionScript): void
  setEncryptedScript(script: EncryptedScript): void
  setProviders(providers: readonly ProviderEntry[]): void
  /** Answers no call that comes from now on, though connections are accepted; until `goOn`. */
  hang(): void
  goOn(): void
  /** Behaves as if the process had ended: connections break, and no new ones are accepted. */
  stop(): Promise<void>
}

export const SCRIPTED_DOMAIN = { chainId: 31337, contract: `0x${'ab'.repeat(20)}` } as const

export const SCRIPTED_PROVIDERS: readonly ProviderEntry[] = [
  {
    name: 'demo',
    origin: 'http://127.0.0.1:9',
    path: '/v1/chat/completions',
    models: ['demo/*'],
    endpoints: { responses: { path: '/v1/responses' }, messages: { path: '/v1/messages' } },
  },
  {
    name: 'openai',
    origin: 'https://api.openai.com',
    path: '/v1/chat/completions',
    models: ['gpt-*', 'ft:*'],
  },
]

/**
 * Starts an enclave over a real Unix socket. Log, account and seals are the real ones; the provider
 * is a script, which acts on the gateway's connection as the test needs it.
 */
export async function startScriptedEnclave(
  options: { readonly socketPath?: string; readonly script?: CompletionScript } = {},
): Promise<ScriptedEnclave> {
  const socketPath =
    options.socketPath ?? join(mkdtempSync(join(tmpdir(), 'affidavit-enclave-')), 'enclave.sock')
  mkdirSync(dirname(socketPath), { recursive: true })
  rmSync(socketPath, { force: true })
  const nsm = await testNsm()
  let providers = SCRIPTED_PROVIDERS
  const notary = new ScriptedNotary(
    () => ({
      protocol_version: PROTOCOL_VERSION,
      providers,
      ca_sha256: 'ca'.repeat(32),
      chain_id: SCRIPTED_DOMAIN.chainId,
      contract: SCRIPTED_DOMAIN.contract,
    }),
    (fields) => nsm.attest(fields),
  )
  const { account, log } = notary
  notary.document = documentOf(
    await nsm.attest({ publicKey: account.publicKey, userData: null, nonce: null }),
  )
  const calls: ArrivedCall[] = []
  let script = options.script ?? answerWhole({ choices: [] })
  let identityCalls = 0
  let singleProofs = 0
  let pullsLoseProofs = false
  let encryptedScript: EncryptedScript = ({ response }) => void response.destroy()
  const waiting = new Map<string, (proof: AnchorProof) => void>()

  async function encrypted(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = JSON.parse(
      Buffer.from(String(request.headers[CALL_HEADER]), 'base64url').toString(),
    ) as EncryptedCall
    await encryptedScript({
      call,
      request,
      response,
      left: once(response, 'close').then(() => undefined),
      record(kind, content) {
        if (!response.headersSent)
          response.writeHead(200, { [RESPONSE_NONCE_HEADER]: SCRIPTED_NONCE })
        const bytes = content instanceof Uint8Array ? content : Buffer.from(JSON.stringify(content))
        const head = Buffer.alloc(1 + 4)
        head.writeUInt8(ENCRYPTED_RECORDS[kind])
        head.writeUInt32BE(bytes.length, 1)
        return response.write(Buffer.concat([head, bytes]))
      },
      seal: (body, completion, outcome = 'complete') =>
        notary.seal({
          ...finishedCompletion(
            { context: call.context, provider: 'demo', credential: null },
            { body, completion, outcome, chunks: [] },
          ),
          isEncrypted: true,
        }),
      proof: (id) => new Promise((resolve) => waiting.set(id, resolve)),
    })
  }

  async function complete(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const left = new Promise<void>((resolve) => {
      response.once('close', () => {
        if (!response.writableFinished) resolve()
      })
    })
    const body = await readAll(request)
    const call = JSON.parse(
      Buffer.from(String(request.headers[CALL_HEADER]), 'base64url').toString(),
    )
    const seal: ArrivedCall['seal'] = (completion, outcome = 'complete', chunks = []) => {
      const given = { body, completion, outcome, chunks }
      return notary.seal(finishedCompletion(call, given))
    }
    const arrived = { call, body, response, left, seal }
    calls.push(arrived)
    await script(arrived)
  }

  let hanging: PromiseWithResolvers<void> | null = null

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    await hanging?.promise
    const url = new URL(request.url ?? '/', 'http://enclave')
    if (url.pathname.startsWith(ENCLAVE_PATHS.completions)) return complete(request, response)
    if (url.pathname === ENCLAVE_PATHS.encrypted) return encrypted(request, response)
    if (url.pathname === ENCLAVE_PATHS.encryptedProof) {
      const proof: AnchorProof = JSON.parse((await readAll(request)).toString())
      singleProofs++
      waiting.get(proof.call)?.(proof)
      return send(response, {})
    }
    if (url.pathname === ENCLAVE_PATHS.identity) identityCalls++
    if (url.pathname === ENCLAVE_PATHS.identity)
      return send(response, { ...notary.identity(), encryption_keys: [SCRIPTED_KEY] })
    if (url.pathname === ENCLAVE_PATHS.attestation)
      return send(response, {
        document: Buffer.from(url.searchParams.get('nonce') ?? '', 'hex').toString('base64'),
      })
    const asked = JSON.parse((await readAll(request)).toString())
    if (url.pathname === ENCLAVE_PATHS.attestHead)
      return send(response, await notary.attestHead(asked.block_hash))
    const { proofs = [] } = asked as PullRequest
    if (!pullsLoseProofs) for (const proof of proofs) waiting.get(proof.call)?.(proof)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    send(response, await notary.pull(asked, gone.signal))
  }

  const server = createServer((request, response) => {
    response.on('error', () => {})
    serve(request, response).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(socketPath, resolve))
  return {
    socketPath,
    notary: account.notary,
    calls,
    countIdentityCalls: () => identityCalls,
    countSingleProofs: () => singleProofs,
    setPullsLoseProofs: (isLost) => {
      pullsLoseProofs = isLost
    },
    setScript: (next) => {
      script = next
    },
    setEncryptedScript: (next) => {
      encryptedScript = next
    },
    setProviders: (next) => {
      providers = next
    },
    hang: () => {
      hanging = Promise.withResolvers()
    },
    goOn: () => {
      hanging?.resolve()
      hanging = null
    },
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      log.wake()
      await closed
      rmSync(dirname(socketPath), { recursive: true, force: true })
    },
  }
}

/** A key without a private key: scripts read bodies as they are. */
const SCRIPTED_KEY: EncryptionKey = {
  public_key: 'cd'.repeat(32),
  not_before: 0,
  not_after: 7_200,
  signature: `0x${'ef'.repeat(65)}`,
}

/** Script of an answer without stream. Members that every completion has are filled in. */
export function answerWhole(members: JsonObject): CompletionScript {
  return ({ response, seal }) => send(response, seal(completionOf(members)))
}

/** Script of a fault. */
export function answerFault(fault: EnclaveFault): CompletionScript {
  return ({ response }) => send(response, fault, fault.status)
}

/** A completion in the interface's form (2.2), with `members` over the defaults. */
export function completionOf(members: JsonObject): JsonObject {
  const message = { role: 'assistant', content: 'hello', refusal: null }
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'demo/echo',
    choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
    usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
    ...members,
  }
}

/** Sends JSON as the enclave does. */
export function send(response: ServerResponse, value: object, status = 200): void {
  const text = Buffer.from(JSON.stringify(value))
  response
    .writeHead(status, { 'content-type': 'application/json', 'content-length': text.length })
    .end(text)
}

/** Text of a named event, as the enclave writes it. */
export function namedEvent(name: string, value: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`
}

/** One security module for all enclaves of a test file: to make its certificates takes a while. */
function testNsm(): Promise<Nsm> {
  sharedNsm ??= openSoftwareNsm({
    rootFile: null,
    now: Date.now,
  })
  return sharedNsm
}

let sharedNsm: Promise<Nsm> | null = null

function finishedCompletion(
  call: CompletionCall,
  given: {
    readonly body: Buffer
    readonly completion: JsonObject
    readonly outcome: Receipt['outcome']
    readonly chunks: readonly JsonObject[]
  },
) {
  const request: JsonObject = JSON.parse(given.body.toString())
  const dialect = DIALECTS[call.dialect ?? 'chat']
  const { headers = {} } = call
  const hashed = dialect.hashedRequest(dialect.requestOf(request, headers))
  const canonicalRequest = canonicalizeJson(hashed)
  return {
    dialect,
    headers,
    canonicalRequest,
    requestDigest: createHash('sha256').update(canonicalRequest).digest(),
    response: given.completion,
    streamHash: request.stream === true ? hashChunks(given.chunks) : null,
    attempt: 1,
    credential: { from: 'operator', demanded: false } as const,
    forwardedHash: '00'.repeat(32),
    receivedHash: '11'.repeat(32),
    provider: { name: call.provider, origin: 'http://127.0.0.1:9', tls: null },
    requestedModel: String(request.model),
    outcome: given.outcome,
    startedAtMs: 1_700_000_000_000,
    finishedAtMs: 1_700_000_001_500,
    context: call.context,
    isEncrypted: false,
    inNotice: call.tells_completion === true,
  }
}

export async function readAll(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts)
}
