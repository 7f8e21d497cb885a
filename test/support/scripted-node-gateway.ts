import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { type WebSocket, WebSocketServer } from 'ws'

type Members = Readonly<Record<string, unknown>>

/** A call to the gateway's REST side; calls are kept in the order in which they came. */
export type RestCall = {
  readonly method: string
  readonly path: string
  readonly body: Members | null
}

/** One node that dialled in. */
export type NodeSocket = {
  readonly headers: IncomingHttpHeaders
  /** Frames it sent, parsed, in order. */
  readonly frames: readonly Members[]
  send(frame: object | string): void
  sendBytes(bytes: Uint8Array): void
  close(code: number, reason?: string): void
  /** Stops reading, pings included, and continues. */
  pause(): void
  resume(): void
  /** Cuts the connection without a close. */
  cut(): void
  /** Close code, once it is closed. */
  readonly closed: Promise<number>
}

/** The gateway's side of the node protocol, by a script, over real sockets. */
export type ScriptedNodeGateway = {
  readonly url: string
  readonly calls: readonly RestCall[]
  /** All nodes that dialled in, in order. */
  readonly nodes: readonly NodeSocket[]
  /** The known node and benchmarks; a test may change them. */
  readonly known: {
    node: Members | null
    /** What the node has served. */
    stats: Members
    readonly benchmarks: Map<string, number>
    /** The account's nodes, as they are listed: the created ones, and further ones of a test. */
    readonly listed: Members[]
    /** When set, every REST call gets this answer. */
    refusal: { readonly status: number; readonly text: string } | null
    /** Called with each node that dials in, before anything else. */
    onNode: (node: NodeSocket) => void
  }
  stop(): Promise<void>
}

export const NODE_ID = 'one_two_three_four_five'
export const NODE_KEY = 'afd_aaaaaaaaaaaaaaaa_a-planted-key-that-no-log-may-hold'

/**
 * Starts a gateway that knows one node, with hardware and without benchmarks; on an ephemeral port
 * by default.
 */
export async function startScriptedNodeGateway(port = 0): Promise<ScriptedNodeGateway> {
  const calls: RestCall[] = []
  const nodes: NodeSocket[] = []
  const known: ScriptedNodeGateway['known'] = {
    node: { node_id: NODE_ID, name_alias: 'one', status: 'Stopped', cpu_model: 'Test' },
    stats: { requests_served: 7, completed_inferences: [] },
    benchmarks: new Map(),
    listed: [],
    refusal: null,
    onNode: () => undefined,
  }
  const server = createServer(async (request, response) => {
    const body = await readBody(request)
    calls.push({ method: request.method ?? '', path: request.url ?? '', body })
    answer(request, response, body, known)
  })
  const sockets = new WebSocketServer({ server, path: '/v1/node/ws', maxPayload: 1024 * 1024 })
  sockets.on('connection', (socket, request) => {
    const node = takeNode(socket, request)
    nodes.push(node)
    known.onNode(node)
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${address.port}`,
    calls,
    nodes,
    known,
    stop: async () => {
      for (const socket of sockets.clients) socket.terminate()
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function takeNode(socket: WebSocket, request: IncomingMessage): NodeSocket {
  const frames: Members[] = []
  socket.on('message', (data) => frames.push(JSON.parse(String(data))))
  socket.on('error', () => undefined)
  return {
    headers: request.headers,
    frames,
    send: (frame) => socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    sendBytes: (bytes) => socket.send(bytes),
    close: (code, reason) => socket.close(code, reason),
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    cut: () => socket.terminate(),
    closed: once(socket, 'close').then(([code]) => code as number),
  }
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  body: Members | null,
  known: ScriptedNodeGateway['known'],
): void {
  const send = (status: number, value: unknown) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
  if (known.refusal !== null) {
    response.writeHead(known.refusal.status).end(known.refusal.text)
    return
  }
  const url = new URL(request.url ?? '/', 'http://gateway')
  const route = `${request.method} ${url.pathname}`
  const notFound = {
    response: 'NOK',
    error: { status_code: 404, code: 'not_found', message: 'No such node' },
  }
  if (request.headers.authorization !== `Bearer ${NODE_KEY}`)
    send(401, {
      response: 'NOK',
      error: { status_code: 401, code: 'invalid_credentials', message: 'This key is not valid' },
    })
  else if (route === 'POST /v1/dashboard/node') {
    const made = known.listed.length
    const nodeId = made === 0 ? NODE_ID : `${NODE_ID}_${made}`
    known.listed.push({ node_id: nodeId, name_alias: body?.node_name, is_archived: false })
    send(200, { response: 'OK', node_id: nodeId })
  } else if (route === 'GET /v1/dashboard/nodes') send(200, { response: 'OK', nodes: known.listed })
  else if (known.node === null) send(404, notFound)
  else if (route === 'GET /v1/node/info') send(200, known.node)
  else if (route === 'GET /v1/node/stats') send(200, known.stats)
  else if (route === 'GET /v1/node/benchmark') {
    const model = url.searchParams.get('model') ?? ''
    const speed = known.benchmarks.get(model)
    if (speed === undefined) send(404, notFound)
    else send(200, { node_id: NODE_ID, model_name: model, tokens_per_second: speed })
  } else if (route === 'POST /v1/node/benchmark') {
    known.benchmarks.set(String(body?.model_name), Number(body?.tokens_per_second))
    send(200, { response: 'OK' })
  } else if (route === 'POST /v1/node/info') {
    known.node = { ...known.node, ...body }
    send(200, { response: 'OK' })
  } else send(404, notFound)
}

async function readBody(request: IncomingMessage): Promise<Members | null> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) text += part
  return text === '' ? null : JSON.parse(text)
}
