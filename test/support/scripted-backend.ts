import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** An inference server that answers by a script, over real sockets. */
export type ScriptedBackend = {
  readonly url: string
  /** Bodies of the chat requests that came, parsed. */
  readonly requests: readonly Readonly<Record<string, unknown>>[]
  /** Open calls, and calls whose caller left before the end. */
  readonly open: () => number
  readonly left: () => number
  /** Connections so far. */
  readonly connections: () => number
  stop(): Promise<void>
}

/** Answers one chat request. */
export type BackendScript = (
  response: ServerResponse,
  body: Readonly<Record<string, unknown>>,
  request: IncomingMessage,
) => void | Promise<void>

/**
 * Starts a backend on loopback, on an ephemeral port by default. It lists `models`; null makes its
 * list fail.
 */
export async function startScriptedBackend(
  script: BackendScript,
  models: readonly string[] | null = ['model-a'],
  at = 0,
  /** Answers what is not chat or images; 404 by default, as an old server does. */
  others: (request: IncomingMessage, response: ServerResponse) => void = (request, response) => {
    request.resume()
    response.writeHead(404).end()
  },
): Promise<ScriptedBackend> {
  const requests: Readonly<Record<string, unknown>>[] = []
  const counts = { open: 0, left: 0, connections: 0 }
  const server = createServer(async (request, response) => {
    if (request.method === 'GET') return list(request, response, models)
    if (OTHER_PATHS.test(request.url ?? '')) return others(request, response)
    const body = JSON.parse(await readText(request))
    requests.push(body)
    counts.open += 1
    response.on('close', () => {
      counts.open -= 1
      if (!response.writableFinished) counts.left += 1
    })
    await script(response, body, request)
  })
  server.on('connection', () => {
    counts.connections += 1
  })
  server.listen(at, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    open: () => counts.open,
    left: () => counts.left,
    connections: () => counts.connections,
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const OTHER_PATHS = /\/v1\/(responses|messages|completions)$/

/** A chunk of one choice with this text. */
export function textChunk(
  text: string,
  finishReason: string | null = null,
): Record<string, unknown> {
  const delta = text === '' && finishReason !== null ? {} : { content: text }
  const choices = [{ index: 0, delta, finish_reason: finishReason }]
  return {
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'model-a',
    choices,
    usage: null,
  }
}

/** The chunk that carries the usage. */
export function usageChunk(completionTokens: number): Record<string, unknown> {
  const usage = {
    prompt_tokens: 5,
    completion_tokens: completionTokens,
    total_tokens: 5 + completionTokens,
  }
  return { ...textChunk(''), choices: [], usage }
}

/** Writes chunks (or texts as they are) as events; the head goes first. */
export function writeEvents(response: ServerResponse, chunks: readonly (object | string)[]): void {
  if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const chunk of chunks)
    response.write(`data: ${typeof chunk === 'string' ? chunk : JSON.stringify(chunk)}\n\n`)
}

/** Answers with these words, usage and the end mark. */
export function answerWith(...words: readonly string[]): BackendScript {
  return (response) => {
    const chunks = words.map((word) => textChunk(word))
    writeEvents(response, [...chunks, textChunk('', 'stop'), usageChunk(words.length), '[DONE]'])
    response.end()
  }
}

function list(
  request: IncomingMessage,
  response: ServerResponse,
  models: readonly string[] | null,
): void {
  const isUp = models !== null && request.url !== '/missing'
  const body = request.url?.endsWith('/v1/models')
    ? { object: 'list', data: (models ?? []).map((id) => ({ id, object: 'model' })) }
    : { status: 'ok' }
  response
    .writeHead(isUp ? 200 : 503, { 'content-type': 'application/json' })
    .end(JSON.stringify(body))
}

async function readText(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) text += part
  return text
}
