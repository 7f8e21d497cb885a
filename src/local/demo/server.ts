import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { EVIDENCE_PATHS } from '#attestation/providers/evidence/evidence-document.ts'
import type { SimulatedTee } from '../tee/simulated-tee.ts'
import type { DemoAnswer } from './answers.ts'
import { answerChat, CHAT_END } from './chat-answer.ts'
import { parseChatRequest } from './chat-request.ts'
import { embed } from './embeddings.ts'
import { drawImages, parseEdit, parseGeneration } from './images.ts'
import { answerMessages } from './messages-answer.ts'
import { countRequest, parseMessagesRequest } from './messages-request.ts'
import { checkModel, DEMO_MODELS, describeModel, TEE_MODELS } from './models.ts'
import { readReplay, replayedFile, replayFrames } from './replay.ts'
import { DemoError } from './request.ts'
import { answerResponses } from './responses-answer.ts'
import { parseResponsesRequest } from './responses-request.ts'

/** The gateway's own limit is smaller. */
export const DEMO_BODY_BYTES_MAX = 32 * 1024 * 1024
/** Long, so that a caller's pool rarely uses a connection that is just closing. */
const DEMO_KEEP_ALIVE_MS = 60_000

type DemoOptions = {
  /** Pause before each chunk of a stream, and before a whole answer. */
  readonly delayMs: number
  /** Unix milliseconds. */
  readonly now: () => number
  /** Folder of the recorded answers. Null: none are served. */
  readonly replayFolder?: string | null
}

type Served = DemoOptions & {
  readonly models: readonly string[]
  /** Null: the server has no evidence. */
  readonly tee: SimulatedTee | null
}

/** Returns a server that does not listen yet. README.md in this folder describes its answers. */
export function createDemoServer(options: DemoOptions): Server {
  return keepConnections(createServer(listenerOf({ ...options, models: DEMO_MODELS, tee: null })))
}

/**
 * Returns the HTTPS server of the simulated TEE, which does not listen yet. It serves the same API
 * for other models. It also serves Tinfoil's attestation document.
 */
export function createTeeServer(options: DemoOptions, tee: SimulatedTee): TlsServer {
  const listener = listenerOf({ ...options, models: TEE_MODELS, tee })
  return keepConnections(createTlsServer({ ...tee.tls, minVersion: 'TLSv1.2' }, listener))
}

function keepConnections<Kept extends Server | TlsServer>(server: Kept): Kept {
  server.keepAliveTimeout = DEMO_KEEP_ALIVE_MS
  return server
}

type Call = {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** Method and path. */
  readonly route: string
  readonly query: string
  readonly served: Served
}

function listenerOf(served: Served) {
  return (request: IncomingMessage, response: ServerResponse) => {
    serve(request, response, served).catch((fault: unknown) => refuse(request, response, fault))
  }
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  served: Served,
): Promise<void> {
  const [path = '/', query = ''] = (request.url ?? '/').split('?', 2)
  const route = `${request.method} ${path}`
  const run = ROUTES[route] ?? (route.startsWith(ONE_MODEL) ? describeOne : refuseUnknown)
  const answer = await run({ request, response, route, query, served })
  if (answer !== undefined) sendJson(response, 200, answer)
}

const ONE_MODEL = 'GET /v1/models/'

const CHAT_ROUTE = 'POST /v1/chat/completions'

/** Returns the answer, or undefined when it is sent already. */
type Run = (call: Call) => Promise<object | undefined>

const ROUTES: Readonly<Record<string, Run>> = {
  [CHAT_ROUTE]: callOf(parseChatRequest, answerChat),
  'POST /v1/responses': callOf(parseResponsesRequest, answerResponses),
  'POST /v1/messages': callOf(parseMessagesRequest, answerMessages),
  'POST /v1/messages/count_tokens': async ({ request }) => countRequest(await readBody(request)),
  'POST /v1/embeddings': async ({ request }) => embed(await readBody(request)),
  'POST /v1/images/generations': async ({ request, served }) =>
    drawImages(parseGeneration(await readBody(request)), served.now()),
  'POST /v1/images/edits': async ({ request, served }) => {
    const type = request.headers['content-type'] ?? ''
    return drawImages(await parseEdit(await readBody(request), type), served.now())
  },
  'GET /v1/models': async ({ served }) => ({
    object: 'list',
    data: served.models.map(describeModel),
  }),
  [`GET ${EVIDENCE_PATHS.tinfoil}`]: async (call) => {
    const { tee } = call.served
    if (tee === null) return refuseUnknown(call)
    sendText(call.response, 200, tee.attest(nonceIn(call.query)))
    return undefined
  },
}

async function describeOne({ route, served }: Call): Promise<object> {
  const id = route.slice(ONE_MODEL.length)
  checkModel(id, served.models)
  return describeModel(id)
}

async function refuseUnknown({ route }: Call): Promise<never> {
  throw new DemoError(404, `Unknown request: ${route}.`)
}

/** Refuses a query without a nonce, because a document without a nonce could be old. */
function nonceIn(query: string): Uint8Array {
  const [nonce = '', ...others] = new URLSearchParams(query).getAll('nonce')
  if (!/^[0-9a-f]{64}$/.test(nonce) || others.length > 0)
    throw new DemoError(400, 'Expected ?nonce= with 64 lower-case hex digits, once.', {
      param: 'nonce',
    })
  return Buffer.from(nonce, 'hex')
}

function callOf<
  Asked extends { readonly model: string; readonly stream?: boolean | null | undefined },
>(parse: (body: Uint8Array) => Asked, answer: (asked: Asked, nowMs: number) => DemoAnswer): Run {
  return async (call) => {
    const { request, response, served } = call
    const asked = parse(await readBody(request))
    const file = replayedFile(asked.model)
    if (file !== null && served.replayFolder)
      return replay(call, served.replayFolder, { file, isStream: asked.stream === true })
    checkModel(asked.model, served.models)
    const { whole, frames, end } = answer(asked, served.now())
    if (asked.stream === true) {
      await stream(response, frames(), served)
      response.end(end)
      return undefined
    }
    if (served.delayMs > 0) await sleep(served.delayMs)
    return whole()
  }
}

/** Sends a recorded answer byte by byte as it is in its file. */
async function replay(
  { response, route, served }: Call,
  folder: string,
  asked: { readonly file: string; readonly isStream: boolean },
): Promise<undefined> {
  const text = await readReplay(folder, asked)
  const isChat = route === CHAT_ROUTE
  if (asked.isStream) {
    await stream(response, replayFrames(text, { isNamed: !isChat }), served)
    response.end(isChat ? CHAT_END : '')
    return
  }
  if (served.delayMs > 0) await sleep(served.delayMs)
  sendText(response, 200, text)
}

/** Writes the frames, without ending the response. Stops when the reader has left. */
async function stream(
  response: ServerResponse,
  frames: Iterable<string>,
  { delayMs }: DemoOptions,
): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  })
  for (const frame of frames) {
    if (delayMs > 0) await sleep(delayMs)
    if (response.destroyed) return
    if (!response.write(frame)) await drained(response)
  }
}

/** Waits until the reader has read the data, or has left. */
async function drained(response: ServerResponse): Promise<void> {
  const settled = new AbortController()
  const { signal } = settled
  await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })])
  settled.abort()
}

/** Uses event listeners, because async iteration takes twice as long in benchmarks. */
function readBody(request: IncomingMessage): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let size = 0
    request.on('data', (part: Buffer) => {
      size += part.length
      if (size <= DEMO_BODY_BYTES_MAX) parts.push(part)
    })
    request.on('error', reject)
    request.on('end', () => {
      if (size <= DEMO_BODY_BYTES_MAX) resolve(Buffer.concat(parts))
      else reject(new DemoError(413, `The body is over ${DEMO_BODY_BYTES_MAX} bytes.`))
    })
  })
}

function refuse(request: IncomingMessage, response: ServerResponse, fault: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const error = fault instanceof DemoError ? fault : new DemoError(500, 'Internal error.')
  const isMessages = request.url?.startsWith('/v1/messages') === true
  sendJson(response, error.status, isMessages ? error.toMessagesBody() : error.toBody())
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  sendText(response, status, JSON.stringify(body))
}

/** Sends the text in one `end` call, so that Node writes headers and body together. */
function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  })
  response.end(text)
}
