import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import type { Socket } from 'node:net'
import { ApiError, type ErrorCode, errorEnvelope } from '../errors.ts'

/** A client has this long to send a request's head. Slow heads are the cheapest attack there is. */
export const HEADERS_TIMEOUT_MS = 15_000

/** And this long for the whole request: 10 MiB in it is 0.7 Mbit/s. */
export const REQUEST_TIMEOUT_MS = 120_000

/** Unused connections are kept this long: more than the 60 s of usual load balancers, or they would meet closed ones. */
export const KEEP_ALIVE_TIMEOUT_MS = 65_000

/** How often the two timeouts above are enforced. */
const CHECK_INTERVAL_MS = 5_000

/** Request head, all headers together. Holds both credentials at their longest. */
export const HEADER_BYTES_MAX = 16 * 1024

/** Open connections; beyond it new ones are closed at once. */
export const CONNECTIONS_MAX = 10_000

/**
 * HTTP/1.1 server with every timeout and limit set, that answers malformed requests in the error envelope like all
 * others. A request that waits for `100 Continue` goes to `listener` like any: whoever reads its body sends the 100.
 */
export function createHttpServer(listener: RequestListener): Server {
  const options = {
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    maxHeaderSize: HEADER_BYTES_MAX,
    noDelay: true,
  }
  const responses = new WeakMap<object, ServerResponse>()
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    responses.set(request.socket, response)
    listener(request, response)
  }
  const server = createServer(options, answer)
  server.maxConnections = CONNECTIONS_MAX
  // Streams end when they end: a socket that is quiet while a model thinks is no dead one.
  server.timeout = 0
  server.on('checkContinue', answer)
  server.on('checkExpectation', answer)
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) =>
    refuseMalformed(error, socket, responses.get(socket)),
  )
  return server
}

/** The parser gives only a socket. Where an answer is on its way already, another one would corrupt it. */
function refuseMalformed(
  error: NodeJS.ErrnoException,
  socket: Socket,
  current: ServerResponse | undefined,
): void {
  const isAnswering = current?.headersSent === true && !current.writableFinished
  if (isAnswering || !socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const [code, message] = MALFORMED[error.code ?? ''] ?? ['malformed_request', 'Expected an HTTP/1.1 request']
  const refusal = new ApiError(code, message)
  const body = errorEnvelope(refusal)
  const head = [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
}

const MALFORMED: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  HPE_HEADER_OVERFLOW: ['headers_too_large', `Expected at most ${HEADER_BYTES_MAX} bytes of headers`],
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout', 'Expected the request to be sent sooner'],
}
