import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { secp256k1 } from '@noble/curves/secp256k1.js'
import { addressOf } from '../../attestation/account.ts'
import { decodeHex, encodeBase64, encodeHex } from '../../attestation/bytes.ts'
import { hashChunks, stripUnsetMembers } from '../../attestation/completion-hash.ts'
import { digestBootConfiguration } from '../../attestation/evidence/boot-configuration.ts'
import { headAttestationUserData } from '../../attestation/evidence/head-statement.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import type { JsonObject } from '../../attestation/json/value.ts'
import type { Receipt } from '../../attestation/receipt.ts'
import type { Account } from '../../enclave/account.ts'
import { NotaryLog } from '../../enclave/log/notary-log.ts'
import { sealCompletion } from '../../enclave/log/seal.ts'
import { Space } from '../../enclave/log/space.ts'
import type { Nsm } from '../../enclave/nsm/nsm.ts'
import {
  CALL_HEADER,
  type CompletionCall,
  ENCLAVE_PATHS,
  type EnclaveFault,
  type HeadAttestationReply,
  type HeadAttestationRequest,
  type Identity,
  PROTOCOL_VERSION,
  type ProviderEntry,
  type PullRequest,
  type SealedNotice,
} from '../../enclave/protocol/messages.ts'
import { openSoftwareNsm } from './software-nsm.ts'

/** A completion call that arrived. */
export type ArrivedCall = {
  readonly call: CompletionCall
  /** Exact bytes. */
  readonly body: Buffer
  readonly response: ServerResponse
  /** Resolves when the gateway's connection is gone before the answer was whole. */
  readonly left: Promise<void>
  /**
   * Appends a completion with this response, of a stream with these chunks, to the log, as the
   * enclave does.
   */
  seal(response: JsonObject, outcome?: Receipt['outcome'], chunks?: readonly JsonObject[]): SealedNotice
}

/** What a scripted enclave does with a completion call. */
export type CompletionScript = (arrived: ArrivedCall) => Promise<void> | void

export type ScriptedEnclave = {
  readonly socketPath: string
  readonly notary: string
  readonly calls: readonly ArrivedCall[]
  /** How often the identity was asked for. */
  countIdentityCalls(): number
  setScript(script: CompletionScript): void
  setProviders(providers: readonly ProviderEntry[]): void
  /** Ends the process, as it were: connections break, and nothing listens. */
  stop(): Promise<void>
}

export const SCRIPTED_DOMAIN = { chainId: 31337, contract: `0x${'ab'.repeat(20)}` } as const

export const SCRIPTED_PROVIDERS: readonly ProviderEntry[] = [
  { name: 'demo', origin: 'http://127.0.0.1:9', path: '/v1/chat/completions', models: ['demo/*'] },
  {
    name: 'openai',
    origin: 'https://api.openai.com',
    path: '/v1/chat/completions',
    models: ['gpt-*', 'ft:*'],
  },
]

/**
 * Starts an enclave over a real Unix socket whose log, account and seals are the real ones, and whose provider is a
 * script: it does to the gateway's connection what the test says.
 */
export async function startScriptedEnclave(
  options: { readonly socketPath?: string; readonly script?: CompletionScript } = {},
): Promise<ScriptedEnclave> {
  const socketPath =
    options.socketPath ?? join(mkdtempSync(join(tmpdir(), 'affidavit-enclave-')), 'enclave.sock')
  mkdirSync(dirname(socketPath), { recursive: true })
  rmSync(socketPath, { force: true })
  const account = makeTestAccount()
  const log = new NotaryLog({ account, domain: SCRIPTED_DOMAIN, space: new Space(2 ** 30) })
  const nsm = await testNsm()
  const bytes = await nsm.attest({ publicKey: account.publicKey, userData: null, nonce: null })
  const document = {
    digest: createHash('sha256').update(bytes).digest('hex'),
    base64: encodeBase64(bytes),
    leafNotAfterMs: Number.MAX_SAFE_INTEGER,
  }
  const calls: ArrivedCall[] = []
  let script = options.script ?? answerWhole({ choices: [] })
  let providers = SCRIPTED_PROVIDERS
  let identityCalls = 0

  function identity(): Identity {
    return {
      boot_configuration: {
        protocol_version: PROTOCOL_VERSION,
        providers,
        ca_sha256: 'ca'.repeat(32),
        chain_id: SCRIPTED_DOMAIN.chainId,
        contract: SCRIPTED_DOMAIN.contract,
      },
      public_key: `0x${encodeHex(account.publicKey)}`,
      notary: account.notary,
      attestation: document.base64,
      log: { size: log.size, acknowledged: log.acknowledged },
    }
  }

  async function complete(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const left = new Promise<void>((resolve) => {
      response.once('close', () => {
        if (!response.writableFinished) resolve()
      })
    })
    const body = await readAll(request)
    const call = JSON.parse(Buffer.from(String(request.headers[CALL_HEADER]), 'base64url').toString())
    const seal: ArrivedCall['seal'] = (completion, outcome = 'complete', chunks = []) => {
      const given = { body, completion, outcome, chunks }
      return sealCompletion({ account, log, document }, finishedCompletion(call, given))
    }
    const arrived = { call, body, response, left, seal }
    calls.push(arrived)
    await script(arrived)
  }

  async function attestHead({ block_hash: hash }: HeadAttestationRequest): Promise<HeadAttestationReply> {
    const { size, root } = log.head()
    const { notary, publicKey } = account
    const configuration = digestBootConfiguration(identity().boot_configuration)
    const userData = headAttestationUserData({ configuration, notary, size, root })
    const attested = await nsm.attest({ publicKey, userData, nonce: decodeHex(hash) })
    return { size, root: encodeHex(root), document: encodeBase64(attested) }
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://enclave')
    if (url.pathname === ENCLAVE_PATHS.completions) return complete(request, response)
    if (url.pathname === ENCLAVE_PATHS.identity) identityCalls++
    if (url.pathname === ENCLAVE_PATHS.identity) return send(response, identity())
    if (url.pathname === ENCLAVE_PATHS.attestation)
      return send(response, {
        document: Buffer.from(url.searchParams.get('nonce') ?? '', 'hex').toString('base64'),
      })
    if (url.pathname === ENCLAVE_PATHS.attestHead)
      return send(response, await attestHead(JSON.parse((await readAll(request)).toString())))
    const pull: PullRequest = JSON.parse((await readAll(request)).toString())
    log.acknowledge(pull.from)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    await log.waitFor(pull.from, pull.wait_ms, gone.signal)
    if (!gone.signal.aborted) send(response, log.pull(pull))
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
    setScript: (next) => {
      script = next
    },
    setProviders: (next) => {
      providers = next
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

/** Script of an answer without stream. Members that every completion has are filled in. */
export function answerWhole(members: JsonObject): CompletionScript {
  return ({ response, seal }) => send(response, seal(completionOf(members)))
}

/** Script of a fault. */
export function answerFault(fault: EnclaveFault): CompletionScript {
  return ({ response }) => send(response, fault, fault.status)
}

/** A completion of the interface's shape (2.2), with `members` on top. */
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
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length }).end(text)
}

/** Text of a named event, as the enclave writes it. */
export function namedEvent(name: string, value: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`
}

/** One security module for all of a test file's enclaves: making its certificates takes a while. */
function testNsm(): Promise<Nsm> {
  sharedNsm ??= openSoftwareNsm({
    rootFile: null,
    now: Date.now,
  })
  return sharedNsm
}

let sharedNsm: Promise<Nsm> | null = null

/** As the enclave's, without the table that makes it faster and costs half a second to begin with. */
function makeTestAccount(): Account {
  const { secretKey } = secp256k1.keygen()
  const publicKey = secp256k1.getPublicKey(secretKey, false)
  return {
    publicKey,
    notary: addressOf(publicKey),
    sign: (digest) => {
      const [recovery = 0, ...rest] = secp256k1.sign(digest, secretKey, {
        prehash: false,
        format: 'recovered',
      })
      return Uint8Array.from([...rest, 27 + recovery])
    },
  }
}

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
  return {
    canonicalRequest: canonicalizeJson(stripUnsetMembers(request)),
    response: given.completion,
    streamHash: request.stream === true ? hashChunks(given.chunks) : null,
    attempt: 1,
    forwardedHash: '00'.repeat(32),
    receivedHash: '11'.repeat(32),
    provider: { name: call.provider, origin: 'http://127.0.0.1:9', tls: null },
    requestedModel: String(request.model),
    outcome: given.outcome,
    startedAtMs: 1_700_000_000_000,
    finishedAtMs: 1_700_000_001_500,
    context: call.context,
  }
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts)
}
