import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { EVIDENCE_PATHS } from '../../../attestation/providers/evidence/evidence-document.ts'
import type { SimulatedTee } from '../tee/simulated-tee.ts'
import { answerChat, writeChunks, writeCompletion } from './chat-answer.ts'
import { parseChatRequest } from './chat-request.ts'
import { embed } from './embeddings.ts'
import { drawImages, parseEdit, parseGeneration } from './images.ts'
import { answerMessages, writeMessagesEvents } from './messages-answer.ts'
import { countRequest, parseMessagesRequest } from './messages-request.ts'
import { checkModel, DEMO_MODELS, describeModel, TEE_MODELS } from './models.ts'
import { DemoError } from './request.ts'
import { answerResponses, type NamedEvent, writeResponsesEvents } from './responses-answer.ts'
import { parseResponsesRequest } from './responses-request.ts'

/** The gateway allows less. */
export const DEMO_BODY_BYTES_MAX = 32 * 1024 * 1024
/** Long, so that a caller's pool rarely uses a connection that is just closing. */
const DEMO_KEEP_ALIVE_MS = 60_000

type DemoOptions = {
  /** Pause before each chunk of a stream, and before a whole answer. */
  readonly delayMs: number
  /** Unix milliseconds. */
  readonly now: () => number
}

type Served = DemoOptions & {
  readonly models: readonly string[]
  /** Null: the server has no evidence. */
  readonly tee: SimulatedTee | null
}

/** The server does not listen yet. README.md in this folder describes its answers. */
export function createDemoServer(options: DemoOptions): Server {
  return keepConnections(createServer(listenerOf({ ...options, models: DEMO_MODELS, tee: null })))
}

/**
 * The HTTPS server of the simulated TEE. It does not listen yet. It has the same API, other models,
 * and Tinfoil's document.
 */
export function createTeeServer(options: DemoOptions, tee: SimulatedTee): TlsServer {
  const listener = listenerOf({ ...options, models: TEE_MODELS, tee })
  return keepConnections(createTlsServer({ ...tee.tls, minVersion: 'TLSv1.2' }, listener))
}

function keepConnections<Kept extends Server | TlsServer>(server: Kept): Kept {
  server.keepAliveTimeout = DEMO_KEEP_ALIVE_MS
  return server
}

function listenerOf(served: Served) {
  return (request: IncomingMessage, response: ServerResponse) => {
    serve(request, response, served).catch((fault: unknown) => refuse(request, response, fault))
  }
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  options: Served,
): Promise<void> {
  const [path = '/', query = ''] = (request.url ?? '/').split('?', 2)
  const route = `${request.method} ${path}`
  const type = request.headers['content-type'] ?? ''
  if (route === 'POST /v1/chat/completions') return complete(request, response, options)
  if (route === 'POST /v1/responses') return respond(request, response, options)
  if (route === 'POST /v1/messages') return answerMessage(request, response, options)
  if (route === 'POST /v1/messages/count_tokens')
    sendJson(response, 200, countRequest(await readBody(request)))
  else if (route === 'POST /v1/embeddings') sendJson(response, 200, embed(await readBody(request)))
  else if (route === 'POST /v1/images/generations') {
    const asked = parseGeneration(await readBody(request))
    sendJson(response, 200, drawImages(asked, options.now()))
  } else if (route === 'POST /v1/images/edits') {
    const asked = await parseEdit(await readBody(request), type)
    sendJson(response, 200, drawImages(asked, options.now()))
  } else if (route === 'GET /v1/models')
    sendJson(response, 200, { object: 'list', data: options.models.map(describeModel) })
  else if (route.startsWith(ONE_MODEL)) {
    const id = route.slice(ONE_MODEL.length)
    checkModel(id, options.models)
    sendJson(response, 200, describeModel(id))
  } else if (options.tee !== null && route === `GET ${EVIDENCE_PATHS.tinfoil}`)
    sendText(response, 200, options.tee.attest(nonceIn(query)))
  else throw new DemoError(404, `Unknown request: ${route}.`)
}

const ONE_MODEL = 'GET /v1/models/'

/** A query without a nonce is refused: the document might be old. */
function nonceIn(query: string): Uint8Array {
  const [nonce = '', ...others] = new URLSearchParams(query).getAll('nonce')
  if (!/^[0-9a-f]{64}$/.test(nonce) || others.length > 0)
    throw new DemoError(400, 'Expected ?nonce= with 64 lower-case hex digits, once.', {
      param: 'nonce',
    })
  return Buffer.from(nonce, 'hex')
}

async function complete(
  request: IncomingMessage,
  response: ServerResponse,
  options: Served,
): Promise<void> {
  const asked = parseChatRequest(await readBody(request))
  checkModel(asked.model, options.models)
  const answer = answerChat(asked, options.now())
  if (asked.stream !== true) return answerWhole(response, writeCompletion(answer), options)
  await stream(response, writeData, writeChunks(answer), options)
  response.end('data: [DONE]\n\n')
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  options: Served,
): Promise<void> {
  const asked = parseResponsesRequest(await readBody(request))
  checkModel(asked.model, options.models)
  const answer = answerResponses(asked, options.now())
  if (asked.stream !== true) return answerWhole(response, answer.response, options)
  await stream(response, writeEvent, writeResponsesEvents(answer), options)
  response.end()
}

async function answerMessage(
  request: IncomingMessage,
  response: ServerResponse,
  options: Served,
): Promise<void> {
  const asked = parseMessagesRequest(await readBody(request))
  checkModel(asked.model, options.models)
  const answer = answerMessages(asked)
  if (asked.stream !== true) return answerWhole(response, answer.message, options)
  await stream(response, writeEvent, writeMessagesEvents(answer), options)
  response.end()
}

async function answerWhole(
  response: ServerResponse,
  body: unknown,
  { delayMs }: DemoOptions,
): Promise<void> {
  if (delayMs > 0) await sleep(delayMs)
  sendJson(response, 200, body)
}

function writeData(data: unknown): string {
  return `data: ${JSON.stringify(data)}\n\n`
}

function writeEvent(event: NamedEvent): string {
  return `event: ${event.type}\n${writeData(event)}`
}

/** Does not end the response. Stops when the reader has left. */
async function stream<Event>(
  response: ServerResponse,
  write: (event: Event) => string,
  events: Iterable<Event>,
  { delayMs }: DemoOptions,
): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  })
  for (const event of events) {
    if (delayMs > 0) await sleep(delayMs)
    if (response.destroyed) return
    if (!response.write(write(event))) await drained(response)
  }
}

/** Waits until the reader has read the data, or has left. */
async function drained(response: ServerResponse): Promise<void> {
  const settled = new AbortController()
  const { signal } = settled
  await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })])
  settled.abort()
}

/** Event listeners: async iteration takes twice as long in benchmarks. */
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

/** Node sends headers and a string body in one write. */
function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  })
  response.end(text)
}
