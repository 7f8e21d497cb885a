import { mkdtempSync, rmSync } from 'node:fs'
import http, { type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { EnclaveConfig, Limits } from '#enclave/config.ts'
import { type Enclave, startEnclave } from '#enclave/enclave.ts'
import type { LogFacts } from '#enclave/logger.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import {
  CALL_HEADER,
  type CompletionCall,
  callPath,
  ENCLAVE_PATHS,
  type EnclaveFault,
  type Identity,
  type ProviderEntry,
  type PullReply,
  type PullRequest,
  type SealedCompletion,
  type SealedNotice,
} from '#enclave/protocol/enclave-api.ts'
import { bundledCas, parseCas } from '#enclave/providers/trusted-cas.ts'
import { openSoftwareNsm } from '../../support/software-nsm.ts'

export const DOMAIN = { chainId: 31337, contract: '0x5fbdb2315678afecb367f032d93f642f64180aa3' }

/** An answer of the enclave, read to its end. */
export type Answer = {
  readonly status: number
  readonly text: string
  readonly json: SealedNotice & EnclaveFault
}

/** A stream of the enclave, read to its end. */
export type StreamAnswer = {
  readonly status: number
  readonly text: string
  /** Data of the events without a name, and of the last: the chunks. */
  readonly chunks: readonly ChunkShape[]
  readonly fault: EnclaveFault | null
  readonly sealed: SealedNotice | null
}

/** As much of a chunk as tests look at. */
export type ChunkShape = {
  readonly id: string
  readonly usage: object | null
  readonly choices: readonly {
    readonly delta: { readonly role?: string; readonly content?: string }
  }[]
}

/** An enclave in this process, over a real socket, and a gateway that talks to it. */
export type TestEnclave = {
  readonly enclave: Enclave
  readonly socketPath: string
  /** Everything it logged. */
  readonly logged: readonly string[]
  complete(
    body: string | object,
    call?: Partial<CompletionCall>,
    dialect?: DialectName,
  ): Promise<Answer>
  stream(body: object, call?: Partial<CompletionCall>): Promise<StreamAnswer>
  /** Opens a call and gives the request, so that a test can leave in the middle. */
  open(
    body: string | object,
    call?: Partial<CompletionCall>,
    dialect?: DialectName,
  ): http.ClientRequest
  get(path: string): Promise<Answer>
  post(path: string, body: string | object): Promise<Answer>
  identity(): Promise<Identity>
  pull(request?: Partial<PullRequest>): Promise<PullReply>
  /** Pulls and acknowledges everything, and gives it. */
  takeAll(): Promise<readonly SealedCompletion[]>
  stop(): Promise<void>
}

export type TestOptions = {
  readonly providers: readonly ProviderEntry[]
  /** PEM of the authorities that providers are verified against. */
  readonly cas?: string
  readonly limits?: Partial<Limits>
  readonly nsm?: Nsm
  /** What heads are signed for. Default: DOMAIN. */
  readonly domain?: { readonly chainId: number; readonly contract: string }
  readonly now?: () => number
  /** Default: `now`. */
  readonly monotonic?: () => number
  readonly waits?: Parameters<typeof startEnclave>[1]['waits']
}

const LIMITS: Limits = {
  connectTimeoutMs: 2_000,
  firstByteTimeoutMs: 5_000,
  idleTimeoutMs: 5_000,
  answerTimeoutMs: 30_000,
  drainTimeoutMs: 5_000,
  answerBytesMax: 4 * 2 ** 20,
  pendingBytesMax: 64 * 2 ** 20,
  callsMax: 1_024,
}

/** Starts an enclave with the software NSM on a socket in a folder of its own. */
export async function startTestEnclave(options: TestOptions): Promise<TestEnclave> {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-'))
  const socketPath = join(folder, 'enclave.sock')
  const now = options.now ?? Date.now
  const logged: string[] = []
  const nsm = options.nsm ?? (await openSoftwareNsm({ rootFile: null, now }))
  const config: Parameters<typeof startEnclave>[0] = {
    ...(options.domain ?? DOMAIN),
    socketPath,
    socketMode: 0o600,
    providers: options.providers,
    cas: options.cas === undefined ? bundledCas() : parseCas(Buffer.from(options.cas)),
    limits: { ...LIMITS, ...options.limits },
    attestationRenewMs: 3_600_000,
  }
  const log = (level: string, event: string, facts?: LogFacts) =>
    logged.push(JSON.stringify({ level, event, ...facts }))
  const enclave = await startEnclave(config, {
    nsm,
    now,
    monotonic: options.monotonic ?? now,
    log,
    ...(options.waits === undefined ? {} : { waits: options.waits }),
  })
  const agent = new http.Agent({ keepAlive: true })
  const stop = async () => {
    agent.destroy()
    await enclave.stop(0)
    rmSync(folder, { recursive: true, force: true })
  }
  return { enclave, socketPath, logged, stop, ...makeGateway({ socketPath, agent, config }) }
}

function makeGateway({
  socketPath,
  agent,
  config,
}: {
  readonly socketPath: string
  readonly agent: http.Agent
  readonly config: Pick<EnclaveConfig, 'providers'>
}) {
  const request = (method: string, path: string, headers: http.OutgoingHttpHeaders = {}) =>
    http.request({ socketPath, agent, method, path, headers })
  const open: TestEnclave['open'] = (body, call, dialect = 'chat') => {
    const header = {
      context: 'context',
      provider: config.providers[0]?.name ?? '',
      credential: 'sk-test',
      ...call,
    }
    const opened = request('POST', callPath(ENCLAVE_PATHS.completions, dialect), {
      [CALL_HEADER]: Buffer.from(JSON.stringify(header)).toString('base64url'),
      'content-type': 'application/json',
    })
    opened.end(typeof body === 'string' ? body : JSON.stringify(body))
    return opened
  }
  const post: TestEnclave['post'] = (path, body) => {
    const opened = request('POST', path)
    opened.end(typeof body === 'string' ? body : JSON.stringify(body))
    return readAnswer(opened)
  }
  const pull: TestEnclave['pull'] = async (asked) => {
    const whole = { from: 0, wait_ms: 0, max: 1000, known_document: null, ...asked }
    const { status, text } = await post(ENCLAVE_PATHS.pull, whole)
    if (status !== 200) throw new Error(`pull: ${status} ${text}`)
    return JSON.parse(text) as PullReply
  }
  const get: TestEnclave['get'] = (path) => {
    const opened = request('GET', path)
    opened.end()
    return readAnswer(opened)
  }
  const identity = async () => JSON.parse((await get(ENCLAVE_PATHS.identity)).text) as Identity
  return {
    open,
    pull,
    get,
    post,
    identity,
    complete: (...asked: Parameters<TestEnclave['open']>) => readAnswer(open(...asked)),
    stream: async (body: object, call?: Partial<CompletionCall>) =>
      readStream(await readAnswer(open({ stream: true, ...body }, call))),
    takeAll: async () => {
      const { log } = await identity()
      const { completions } = await pull({ from: log.acknowledged })
      await pull({ from: log.acknowledged + completions.length })
      return completions
    },
  }
}

/** Reads an answer to its end. Rejects when the connection is lost. */
export async function readAnswer(request: http.ClientRequest): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve)
    request.once('error', reject)
  })
  const parts: Buffer[] = []
  for await (const part of response) parts.push(part)
  const text = Buffer.concat(parts).toString('utf8')
  const isJson = response.headers['content-type'] === 'application/json'
  return { status: response.statusCode ?? 0, text, json: isJson ? JSON.parse(text) : {} }
}

function readStream({ status, text }: Answer): StreamAnswer {
  const events = status === 200 ? new EventParser().push(Buffer.from(text)) : []
  const named = (name: string) =>
    events.filter(({ event }) => event === name).map(({ data }) => JSON.parse(data))
  const fault = status === 200 ? (named('fault')[0] ?? null) : JSON.parse(text)
  return {
    status,
    text,
    chunks: [...named(''), ...named('last')],
    fault,
    sealed: named('sealed')[0] ?? null,
  }
}
