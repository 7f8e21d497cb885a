import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer as createTlsServer } from 'node:tls'
import type { TestCertificate } from './certificates.ts'

/** One thing that a hostile provider does with a connection after it has read a request. */
export type Step =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  /** The same bytes repeated, as fast as the other side reads them. */
  | { readonly kind: 'repeat'; readonly bytes: Uint8Array; readonly times: number }
  | { readonly kind: 'pause'; readonly durationMs: number }
  /** Continues when the promise is settled. */
  | { readonly kind: 'wait'; readonly until: Promise<void> }
  /** Sends no more, and waits until the other side gives up. */
  | { readonly kind: 'stall' }
  /** Closes the connection in order (FIN), even in mid-answer. */
  | { readonly kind: 'end' }
  /** Breaks the connection (RST). */
  | { readonly kind: 'reset' }

/**
 * A request as it came in. `target` and header names are as they were sent, names in lower case.
 */
export type ReceivedRequest = {
  readonly method: string
  readonly target: string
  readonly headers: ReadonlyMap<string, string>
  readonly body: Uint8Array
  /** Resolves when the connection that carried it is gone. */
  readonly closed: Promise<void>
}

export type HostileProvider = {
  readonly origin: string
  /** Every request that came in completely, in order. */
  readonly requests: readonly ReceivedRequest[]
  countConnections(): number
  close(): Promise<void>
}

/**
 * Starts a provider on a loopback port that answers each request with the bytes and pauses of a
 * script, over raw TCP or TLS: no HTTP library is between a test and the wire. When a script ends,
 * the connection stays open.
 */
export async function startHostileProvider(options: {
  readonly answer: (request: ReceivedRequest) => Iterable<Step>
  readonly tls?: TestCertificate
}): Promise<HostileProvider> {
  const sockets = new Set<Socket>()
  const requests: ReceivedRequest[] = []
  const serve = (socket: Socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => socket.destroy())
    socket.setNoDelay(true)
    serveConnection(socket, (request) => {
      requests.push(request)
      return options.answer(request)
    }).catch(() => socket.destroy())
  }
  const server = options.tls
    ? createTlsServer({ cert: options.tls.certificate, key: options.tls.key }, serve)
    : createServer(serve)
  const port = await listen(server)
  return {
    origin: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    requests,
    countConnections: () => sockets.size,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (typeof address === 'object' && address !== null) resolve(address.port)
    })
  })
}

async function serveConnection(
  socket: Socket,
  answer: (request: ReceivedRequest) => Iterable<Step>,
): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => resolve())
  })
  for await (const request of readRequests(socket, closed)) {
    for (const step of answer(request)) {
      if (socket.destroyed) return
      await play(step, socket, closed)
    }
  }
}

async function play(step: Step, socket: Socket, closed: Promise<void>): Promise<void> {
  switch (step.kind) {
    case 'bytes':
      return write(socket, step.bytes, closed)
    case 'wait':
      return Promise.race([step.until, closed])
    case 'repeat':
      for (let time = 0; time < step.times && !socket.destroyed; time += 1)
        await write(socket, step.bytes, closed)
      return
    case 'pause':
      await Promise.race([sleep(step.durationMs), closed])
      return
    case 'stall':
      return closed
    case 'end':
      socket.end()
      return
    case 'reset':
      socket.resetAndDestroy()
      return
  }
}

/**
 * Waits until the bytes have left this process, so that two writes are two segments if the kernel
 * allows it.
 */
async function write(socket: Socket, bytes: Uint8Array, closed: Promise<void>): Promise<void> {
  await Promise.race([new Promise<void>((resolve) => socket.write(bytes, () => resolve())), closed])
}

/** HTTP/1.1 requests with a content-length or in chunks, one after another on a kept connection. */
async function* readRequests(
  socket: Socket,
  closed: Promise<void>,
): AsyncGenerator<ReceivedRequest, void> {
  let buffered: Buffer = Buffer.alloc(0)
  const received: AsyncIterator<Buffer> = socket
    .iterator({ destroyOnReturn: false })
    [Symbol.asyncIterator]()
  const more = async () => {
    const { value, done } = await received.next()
    if (done === true) return false
    buffered = Buffer.concat([buffered, value])
    return true
  }
  while (true) {
    let end = buffered.indexOf('\r\n\r\n')
    while (end < 0) {
      if (!(await more())) return
      end = buffered.indexOf('\r\n\r\n')
    }
    const head = parseHead(buffered.subarray(0, end).toString('latin1'))
    buffered = buffered.subarray(end + 4)
    const isChunked = head.headers.get('transfer-encoding') === 'chunked'
    const sizeOf = () =>
      isChunked ? chunkedSize(buffered) : Number(head.headers.get('content-length') ?? 0)
    while ((sizeOf() ?? Number.POSITIVE_INFINITY) > buffered.length) if (!(await more())) return
    const size = sizeOf() ?? 0
    const raw = buffered.subarray(0, size)
    buffered = buffered.subarray(size)
    yield { ...head, body: isChunked ? joinChunks(raw) : raw, closed }
  }
}

function parseHead(text: string): Pick<ReceivedRequest, 'method' | 'target' | 'headers'> {
  const [first = '', ...lines] = text.split('\r\n')
  const [method = '', target = ''] = first.split(' ')
  const headers = lines.map((line): readonly [string, string] => {
    const colon = line.indexOf(':')
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
  })
  return { method, target, headers: new Map(headers) }
}

/** Bytes of a whole chunked body, or null while a part is missing. */
function chunkedSize(bytes: Buffer): number | null {
  let position = 0
  while (true) {
    const lineEnd = bytes.indexOf('\r\n', position)
    if (lineEnd < 0) return null
    const size = Number.parseInt(bytes.subarray(position, lineEnd).toString('latin1'), 16)
    position = lineEnd + 2 + size + 2
    if (position > bytes.length) return null
    if (size === 0) return position
  }
}

function joinChunks(bytes: Buffer): Buffer {
  const parts: Buffer[] = []
  let position = 0
  while (position < bytes.length) {
    const lineEnd = bytes.indexOf('\r\n', position)
    const size = Number.parseInt(bytes.subarray(position, lineEnd).toString('latin1'), 16)
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
    position = lineEnd + 2 + size + 2
  }
  return Buffer.concat(parts)
}
