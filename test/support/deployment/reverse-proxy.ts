import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** A reverse proxy, as operators put it before several gateways. */
export type ReverseProxy = {
  /** `http://host:port`. */
  readonly url: string
  /** Ports of the gateways that get calls now. */
  healthy(): readonly number[]
  stop(): Promise<void>
}

const CHECK_MS = 250
const CHECK_TIMEOUT_MS = 1_500
/** Checks in a row that must fail before a gateway gets no more calls. */
const FAILURES_MAX = 2
/** Time until the first byte of an answer. */
const HEAD_TIMEOUT_MS = 90_000

type Target = { readonly port: number; isHealthy: boolean; failures: number }

/**
 * Starts a reverse proxy before loopback ports. It takes the ports whose `/readyz` is 200 in turn;
 * if one takes no connection, it tries the next. Bodies are read whole before they are sent on;
 * answers and WebSockets pass as they come. Its own errors have the codes `proxy_no_gateway`,
 * `proxy_gateway_lost` and `proxy_gateway_silent`.
 */
export async function startReverseProxy(ports: readonly number[]): Promise<ReverseProxy> {
  const targets: readonly Target[] = ports.map((port) => ({ port, isHealthy: true, failures: 0 }))
  const stopping = new AbortController()
  let turn = 0
  const choose = (tried: ReadonlySet<Target>): Target | null => {
    const candidates = targets.filter((target) => target.isHealthy && !tried.has(target))
    turn += 1
    return candidates[turn % candidates.length] ?? null
  }
  const server = createServer((incoming, outgoing) => {
    serve(incoming, outgoing, choose).catch(() => outgoing.destroy())
  })
  server.requestTimeout = 0
  server.on('upgrade', (incoming, socket, head) =>
    upgrade(incoming, { near: socket as Socket, head }, choose(new Set())),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const watching = targets.map((target) => watch(target, stopping.signal))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    healthy: () => targets.flatMap(({ isHealthy, port }) => (isHealthy ? [port] : [])),
    stop: async () => {
      stopping.abort()
      await Promise.all(watching)
      await close(server)
    },
  }
}

async function watch(target: Target, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const isReady = await fetch(`http://127.0.0.1:${target.port}/readyz`, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(CHECK_TIMEOUT_MS)]),
    }).then(
      async (reply) => {
        await reply.arrayBuffer()
        return reply.status === 200
      },
      () => false,
    )
    target.failures = isReady ? 0 : target.failures + 1
    target.isHealthy = target.failures < FAILURES_MAX
    await sleep(CHECK_MS, undefined, { signal }).catch(() => undefined)
  }
}

async function serve(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  choose: (tried: ReadonlySet<Target>) => Target | null,
): Promise<void> {
  const parts: Buffer[] = []
  for await (const part of incoming) parts.push(part)
  const body = Buffer.concat(parts)
  const tried = new Set<Target>()
  for (;;) {
    const target = choose(tried)
    if (target === null) return refuse(outgoing, 503, 'proxy_no_gateway')
    tried.add(target)
    const outcome = await pass({ incoming, body, outgoing }, target.port)
    if (outcome === 'done') return
    if (outcome !== 'not_connected') return refuse(outgoing, 502, outcome)
  }
}

type Exchange = {
  readonly incoming: IncomingMessage
  readonly body: Buffer
  readonly outgoing: ServerResponse
}

/** Passes a call to a gateway; `not_connected`: the gateway got no part of the call. */
function pass(
  { incoming, body, outgoing }: Exchange,
  port: number,
): Promise<'done' | 'not_connected' | 'proxy_gateway_lost' | 'proxy_gateway_silent'> {
  return new Promise((resolve) => {
    const { method, url: path, headers } = incoming
    let isConnected = false
    let isSilent = false
    const passed = request({
      host: '127.0.0.1',
      port,
      method,
      path,
      agent: false,
      headers: { ...headers, 'content-length': body.length, connection: 'close' },
    })
    if (headers['transfer-encoding'] !== undefined) passed.removeHeader('transfer-encoding')
    const timer = setTimeout(() => {
      isSilent = true
      passed.destroy()
    }, HEAD_TIMEOUT_MS)
    outgoing.once('close', () => passed.destroy())
    passed.once('socket', (socket) =>
      socket.once('connect', () => {
        isConnected = true
      }),
    )
    passed.once('response', (answer) => {
      clearTimeout(timer)
      // The connection to the caller is kept, even if the connection to the gateway is not.
      const { connection: _, ...given } = answer.headers
      outgoing.writeHead(answer.statusCode ?? 502, given)
      answer.pipe(outgoing)
      // If an answer breaks off, it breaks off for the caller too.
      answer.once('close', () => {
        if (!answer.complete) outgoing.destroy()
        resolve('done')
      })
    })
    passed.once('error', () => {
      clearTimeout(timer)
      if (outgoing.headersSent || outgoing.destroyed) {
        outgoing.destroy()
        resolve('done')
      } else if (isSilent) resolve('proxy_gateway_silent')
      else resolve(isConnected ? 'proxy_gateway_lost' : 'not_connected')
    })
    passed.end(body)
  })
}

function refuse(outgoing: ServerResponse, status: number, code: string): void {
  const error = { status_code: status, code, message: code, type: 'server_error', param: null }
  outgoing
    .writeHead(status, { 'content-type': 'application/json; charset=utf-8', 'retry-after': '1' })
    .end(JSON.stringify({ response: 'NOK', error }))
}

function upgrade(
  { method, url, rawHeaders }: IncomingMessage,
  { near, head }: { readonly near: Socket; readonly head: Buffer },
  target: Target | null,
): void {
  near.on('error', () => near.destroy())
  if (target === null) return void near.destroy()
  const far = connect({ port: target.port, host: '127.0.0.1' })
  far.on('error', () => far.destroy())
  near.once('close', () => far.destroy())
  far.once('close', () => near.destroy())
  near.setNoDelay(true)
  far.setNoDelay(true)
  const lines = Array.from(
    { length: rawHeaders.length / 2 },
    (_, at) => `${rawHeaders[2 * at]}: ${rawHeaders[2 * at + 1]}\r\n`,
  )
  far.write(`${method} ${url} HTTP/1.1\r\n${lines.join('')}\r\n`)
  far.write(head)
  near.pipe(far).pipe(near)
}

async function close(server: Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}
