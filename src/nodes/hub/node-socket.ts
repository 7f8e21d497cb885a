import { type IncomingMessage, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { type WebSocket, WebSocketServer } from 'ws'
import { JSON_TYPE } from '../../api/context.ts'
import { ApiError, errorReply } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { CLOSE_CODES } from '../protocol/hello.ts'
import type { AcceptedNode } from '../runs/connection.ts'
import type { NodeLimits } from '../runs/limits.ts'
import type { AdmitNode } from './admit-node.ts'

/** Path at which nodes connect. Interface facts: the public client appends `/ws` to `/v1/node`. */
export const NODE_SOCKET_PATH = '/v1/node/ws'

type NodeSocket = {
  /** Handles `upgrade` at NODE_SOCKET_PATH. From then on, NodeSocket owns the socket. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  handshakes(): number
  /** Open WebSockets, including those that are closing. */
  sockets(): number
  /** From now on, all handshakes are refused. */
  stop(): void
  /** Resolves when every socket is closed and every handshake has ended. */
  destroy(): Promise<void>
}

type NodeSocketOptions = {
  readonly admit: AdmitNode
  readonly limits: NodeLimits
  readonly log: Logger
  readonly countNodes: () => number
  /** The function owns `socket` when it is called. `stream` is the socket below the WebSocket. */
  readonly onNode: (socket: WebSocket, node: AcceptedNode, key: string, stream: Duplex) => void
}

/**
 * Maximum number of buffered packets of one message. A node can send tiny packets, and each packet
 * takes memory.
 */
const BUFFERED_CHUNKS_MAX = 4_096
const FRAGMENTS_MAX = 1_024
/**
 * Maximum number of packets of a frame with images: 32 MiB in packets of 1 KiB. The total size of
 * packets has its own limit per connection (`image-memory.ts`).
 */
const IMAGE_BUFFERED_CHUNKS_MAX = 32 * 1_024

/**
 * Opens the servers. A bad key is answered over HTTP, because no WebSocket opens without a valid
 * key. Every other refusal opens the WebSocket and closes it with 1008 and the reason, because the
 * public client reads the reason there. permessage-deflate is declined, because its state costs
 * tens of KB per node.
 */
export function createNodeSocket(options: NodeSocketOptions): NodeSocket {
  const { limits, log } = options
  const server = openServer(limits, {
    frameBytesMax: limits.frameBytesMax,
    chunksMax: BUFFERED_CHUNKS_MAX,
  })
  const imageServer = openServer(limits, {
    frameBytesMax: limits.imageFrameBytesMax,
    chunksMax: IMAGE_BUFFERED_CHUNKS_MAX,
  })
  const servers = [server, imageServer]
  let handshakes = 0
  let isStopped = false

  async function shakeHands(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const admitted = await options.admit(request.headers)
    try {
      if (socket.destroyed) return
      if (isStopped) throw new ApiError('shutting_down', 'This instance is shutting down')
      const draws = admitted.kind === 'admitted' && admitted.node.modelType === 'DIFFUSION'
      const door = draws ? imageServer : server
      door.handleUpgrade(request, socket, head, (webSocket) => {
        if (admitted.kind === 'refused') turnAway(webSocket, CLOSE_CODES.policy, admitted.reason)
        else if (options.countNodes() >= limits.connectionsMax)
          turnAway(webSocket, CLOSE_CODES.later, 'Too many nodes')
        else options.onNode(webSocket, admitted.node, admitted.key, socket)
      })
    } finally {
      if (admitted.kind === 'admitted') admitted.release()
    }
  }

  function handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', ignore)
    if (isStopped || handshakes >= limits.handshakesMax) {
      refuse(
        socket,
        new ApiError(isStopped ? 'shutting_down' : 'overloaded', 'Try again in a moment'),
      )
      return
    }
    handshakes++
    const timer = setTimeout(() => socket.destroy(), limits.handshakeTimeoutMs)
    void shakeHands(request, socket, head)
      .catch((error: unknown) => {
        if (!(error instanceof ApiError)) log.error({ err: error }, 'handshake of a node failed')
        refuse(socket, error)
      })
      .finally(() => {
        clearTimeout(timer)
        handshakes--
      })
  }

  return {
    handleUpgrade,
    handshakes: () => handshakes,
    sockets: () => servers.reduce((sum, { clients }) => sum + clients.size, 0),
    stop() {
      isStopped = true
    },
    async destroy() {
      isStopped = true
      for (const { clients } of servers) for (const socket of clients) socket.terminate()
      await Promise.all(servers.map((opened) => new Promise((resolve) => opened.close(resolve))))
    },
  }
}

function openServer(
  limits: NodeLimits,
  { frameBytesMax, chunksMax }: { readonly frameBytesMax: number; readonly chunksMax: number },
): WebSocketServer {
  // A variable, because the compiler refuses closeTimeout in a literal: the types lack it.
  const options = {
    noServer: true,
    clientTracking: true,
    perMessageDeflate: false,
    maxPayload: frameBytesMax,
    maxFragments: FRAGMENTS_MAX,
    maxBufferedChunks: chunksMax,
    closeTimeout: limits.closeTimeoutMs,
  }
  const server = new WebSocketServer(options)
  server.on('wsClientError', (error, socket) =>
    refuse(socket, new ApiError('malformed_request', error.message)),
  )
  return server
}

/** Closes the WebSocket of a node that may not connect, without reading its later frames. */
function turnAway(socket: WebSocket, code: number, reason: string): void {
  socket.on('error', ignore)
  for (const event of ['message', 'ping', 'pong']) socket.once(event, () => socket.pause())
  socket.close(code, reason)
}

/**
 * Answers a handshake over HTTP. The body is JSON, because the public client parses the body before
 * it reads the status.
 */
function refuse(socket: Duplex, error: unknown): void {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  const { status, headers, body } = errorReply(error)
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `content-type: ${JSON_TYPE}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
}

/** Ignores an error, because the socket's close reports the reason. */
function ignore(): void {}
