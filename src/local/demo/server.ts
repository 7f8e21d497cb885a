import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { identifyAnswer, writeChunks, writeCompletion } from './answer.ts'
import { makeChoices } from './choices.ts'
import { embed } from './embeddings.ts'
import { drawImages, parseEdit, parseGeneration } from './images.ts'
import { DEMO_MODELS, describeModel, findModel } from './models.ts'
import { DemoError, parseDemoRequest } from './request.ts'

/** Largest request body, bytes: more than the gateway lets through. */
export const DEMO_BODY_BYTES_MAX = 32 * 1024 * 1024
/** How long an idle connection is kept, so that callers with a pool do not meet a closing one. */
const DEMO_KEEP_ALIVE_MS = 60_000

type DemoOptions = {
  /** Pause before each chunk of a stream, and before a whole answer, milliseconds. */
  readonly delayMs: number
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Gives the demo provider's HTTP server, not yet listening. README.md of this folder says how it
 * answers.
 */
export function createDemoServer(options: DemoOptions): Server {
  const server = createServer((request, response) => {
    serve(request, response, options).catch((fault: unknown) => refuse(response, fault))
  })
  server.keepAliveTimeout = DEMO_KEEP_ALIVE_MS
  return server
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  options: DemoOptions,
): Promise<void> {
  const [path = '/'] = (request.url ?? '/').split('?', 1)
  const route = `${request.method} ${path}`
  const type = request.headers['content-type'] ?? ''
  if (route === 'POST /v1/chat/completions') return complete(request, response, options)
  if (route === 'POST /v1/embeddings') sendJson(response, 200, embed(await readBody(request)))
  else if (route === 'POST /v1/images/generations') {
    const asked = parseGeneration(await readBody(request))
    sendJson(response, 200, drawImages(asked, options.now()))
  } else if (route === 'POST /v1/images/edits') {
    const asked = await parseEdit(await readBody(request), type)
    sendJson(response, 200, drawImages(asked, options.now()))
  } else if (route === 'GET /v1/models')
    sendJson(response, 200, { object: 'list', data: DEMO_MODELS.map(describeModel) })
  else if (route.startsWith(ONE_MODEL))
    sendJson(response, 200, describeModel(findModel(route.slice(ONE_MODEL.length), DEMO_MODELS)))
  else throw new DemoError(404, `Unknown request: ${route}.`)
}

const ONE_MODEL = 'GET /v1/models/'

async function complete(
  request: IncomingMessage,
  response: ServerResponse,
  options: DemoOptions,
): Promise<void> {
  const asked = parseDemoRequest(await readBody(request))
  const choices = makeChoices(asked)
  const identity = identifyAnswer(asked, options.now())
  if (asked.stream === true)
    return stream(response, writeChunks(asked, choices, identity), options.delayMs)
  if (options.delayMs > 0) await sleep(options.delayMs)
  sendJson(response, 200, writeCompletion(asked, choices, identity))
}

async function stream(
  response: ServerResponse,
  chunks: Iterable<unknown>,
  delayMs: number,
): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  })
  for (const chunk of chunks) {
    if (delayMs > 0) await sleep(delayMs)
    if (response.destroyed) return
    if (!response.write(`data: ${JSON.stringify(chunk)}\n\n`)) await drained(response)
  }
  response.end('data: [DONE]\n\n')
}

/** Waits until the reader took what was written, or went away. */
async function drained(response: ServerResponse): Promise<void> {
  const settled = new AbortController()
  const { signal } = settled
  await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })])
  settled.abort()
}

/**
 * Listens for events rather than iterating: half the cost per request, and this is what benchmarks
 * measure against.
 */
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

function refuse(response: ServerResponse, fault: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const error = fault instanceof DemoError ? fault : new DemoError(500, 'Internal error.')
  sendJson(response, error.status, error.toBody())
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  // A string, not bytes: Node then sends headers and body in one write.
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  })
  response.end(text)
}
