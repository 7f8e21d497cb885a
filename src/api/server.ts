import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'
import { errorEnvelope } from '#enclave/protocol/error-envelope.ts'
import { descriptorsMax } from '../runtime/descriptors.ts'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { JSON_TYPE } from './context.ts'
import { ApiError, type ErrorCode } from './errors.ts'
import { createStallCheck, STALL_CHECKS, STALL_TIMEOUT_MS } from './stalled-readers.ts'

/** A client must send a request's head in this time. Slow heads are the cheapest attack. */
const HEADERS_TIMEOUT_MS = 15_000

/** A whole request must arrive in this time. At 0.9 Mbit/s, 64 MiB arrive in time. */
const REQUEST_TIMEOUT_MS = 600_000

/**
 * An unused connection is closed after this time. Load balancers usually keep connections for 60 s.
 * With a shorter time here, they would use closed connections.
 */
const KEEP_ALIVE_TIMEOUT_MS = 65_000

/** Interval between two checks of the timeouts above. */
const CHECK_INTERVAL_MS = 5_000

/** Maximum size of a request's head. The longest API key and provider credential fit together. */
export const REQUEST_HEAD_BYTES_MAX = 16 * 1024

/** Includes connections of nodes. Further connections are closed at once. */
const CONNECTIONS_MAX = 30_000
/**
 * Connections get this share of the file descriptors. The database, enclaves, the chain and files
 * use the rest.
 */
const DESCRIPTORS_SHARE = 0.75

/**
 * Unanswered requests of one connection. A further one closes the connection: Node.js would accept
 * hundreds of pipelined requests in one packet. SDKs and proxies send one at a time.
 */
export const PIPELINED_MAX = 16

/** Above this number, Node.js warns of a leak. */
const LISTENERS_MAX = 20

/**
 * Creates an HTTP/1.1 server with every timeout and limit set. Malformed requests are answered in
 * the error envelope. A request that waits for `100 Continue` goes to `listener` like any other
 * request: the code that reads the body sends the 100. A request to change the protocol becomes an
 * `upgrade` event if `isUpgrade` accepts it. Otherwise it also goes to `listener`, because clients
 * offer protocols (`h2c`) that they do not need.
 */
export function createHttpServer(
  listener: RequestListener,
  {
    isUpgrade = () => false,
    connectionsMax = connectionsMaxOf(descriptorsMax()),
    stallTimeoutMs = STALL_TIMEOUT_MS,
    headers = {},
  }: {
    readonly isUpgrade?: (request: IncomingMessage) => boolean
    readonly connectionsMax?: number
    /** See STALL_TIMEOUT_MS. */
    readonly stallTimeoutMs?: number
    /** Headers of every answer, including answers to malformed requests. */
    readonly headers?: Readonly<Record<string, string>>
  } = {},
): ApiServer {
  const options = {
    shouldUpgradeCallback: isUpgrade,
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    maxHeaderSize: REQUEST_HEAD_BYTES_MAX,
    noDelay: true,
    // The answer of Node.js to a request without Host would have no error envelope.
    requireHostHeader: false,
  }
  const running = new Map<Socket, Set<ServerResponse>>()
  const silent = new Set<Socket>()
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request
    silent.delete(socket)
    const responses = running.get(socket) ?? new Set()
    if (socket.destroyed || responses.size >= PIPELINED_MAX) {
      socket.destroy()
      return
    }
    running.set(socket, responses.add(response))
    // Each part of a call that follows the answer's end has a listener. A stream adds several.
    response.setMaxListeners(LISTENERS_MAX)
    response.once('close', () => responses.delete(response))
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    if (lacksHost(request)) refuseWithoutHost(response)
    else listener(request, response)
  }
  const server = createServer(options, answer)
  server.maxConnections = connectionsMax
  server.on('connection', (socket) => {
    silent.add(socket)
    socket.once('close', () => {
      silent.delete(socket)
      running.delete(socket)
    })
  })
  const cutStalled = createStallCheck()
  server.once('listening', () => {
    const checks = setInterval(() => cutStalled(running.keys()), stallTimeoutMs / STALL_CHECKS)
    checks.unref()
    server.once('close', () => clearInterval(checks))
  })
  server.on('upgrade', ({ socket }) => silent.delete(socket))
  // Without this listener, the process would end if one connection gets no file descriptor.
  server.on('error', () => undefined)
  // No timeout: a stream may be silent while a model thinks. cutStalled cuts stalled readers.
  server.timeout = 0
  server.on('checkContinue', answer)
  server.on('checkExpectation', answer)
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) =>
    refuseMalformed(error, socket, { due: [...(running.get(socket) ?? [])], headers }),
  )
  const load = async () => ({
    open: await countConnections(server),
    silent: silent.size,
    max: connectionsMax,
  })
  return Object.assign(server, { load })
}

/** `silent` counts connections that have not sent a whole head. */
export type ApiServer = Server & { readonly load: () => Promise<ConnectionLoad> }

export type ConnectionLoad = {
  readonly open: number
  readonly silent: number
  readonly max: number
}

export function connectionsMaxOf(descriptors: number): number {
  return Math.max(1, Math.min(CONNECTIONS_MAX, Math.floor(descriptors * DESCRIPTORS_SHARE)))
}

function countConnections(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.getConnections((error, count) => resolve(error ? 0 : count))
  })
}

/**
 * A request without Host must be refused (RFC 9112 section 3.2), because a proxy before this server
 * may have used another host.
 */
function lacksHost({ httpVersion, headers }: IncomingMessage): boolean {
  return httpVersion === '1.1' && headers.host === undefined
}

function refuseWithoutHost(response: ServerResponse): void {
  const refusal = new ApiError('malformed_request', 'Expected the header Host')
  const body = errorEnvelope(refusal)
  response.writeHead(refusal.status, {
    'content-type': JSON_TYPE,
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  })
  response.end(body)
}

/**
 * Refuses a malformed request. If another answer is still due, only closes the connection, because
 * the client would take the refusal for the due answer. The parser provides no ServerResponse.
 */
function refuseMalformed(
  error: NodeJS.ErrnoException,
  socket: Socket,
  {
    due,
    headers,
  }: {
    readonly due: readonly ServerResponse[]
    readonly headers: Readonly<Record<string, string>>
  },
): void {
  const isOthers = due.length > 1 || due.some(({ headersSent, req }) => headersSent || req.complete)
  if (isOthers || !socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const [code, message] = MALFORMED[error.code ?? ''] ?? [
    'malformed_request',
    'Expected an HTTP/1.1 request',
  ]
  const refusal = new ApiError(code, message)
  const body = errorEnvelope(refusal)
  const head = [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
    `content-type: ${JSON_TYPE}`,
    `content-length: ${Buffer.byteLength(body)}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
}

const MALFORMED: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: [
    'headers_too_large',
    `Expected at most ${REQUEST_HEAD_BYTES_MAX} bytes of headers`,
  ],
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout', 'The request was sent too slowly'],
}

/** Port 0 selects a free port. */
type Address = { readonly host: string; readonly port: number }

/** Returns the address as a URL. Rejects with StartFailure. */
export async function listenAt(
  { host, port: wanted }: Address,
  server: { listen(at: Address): Promise<AddressInfo> },
): Promise<string> {
  const at = { host, port: wanted }
  const { address, family, port } = await server
    .listen(at)
    .catch((error) => refuseAddress(at, error))
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}

/**
 * Called before all other parts start, so that a taken port is reported at once. Rejects with
 * StartFailure.
 */
export async function tryAddress({ host, port }: Address): Promise<void> {
  const server = createTcpServer()
  try {
    server.listen({ host, port })
    await once(server, 'listening').catch((error) => refuseAddress({ host, port }, error))
  } finally {
    await new Promise((resolve) => server.close(resolve))
  }
}

function refuseAddress({ host, port }: Address, error: unknown): never {
  const code = systemCodeOf(error)
  const reason =
    code === 'EADDRINUSE'
      ? `PORT ${port} is in use by another program; stop that program, or set PORT to another port (0 means any free port)`
      : `the gateway cannot listen on HOST ${host} and PORT ${port} (${code})`
  throw new StartFailure(`gateway: ${reason}`)
}
