import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'

/** A gateway's connections, as a client sees them while the gateway is restarted. */
export type ClosingProxy = {
  readonly url: string
  /** Requests that reached the proxy, as `GET /v1/notaries`. */
  readonly asked: string[]
  /**
   * Ends a connection at its second request without an answer, as a client sees it when it kept a
   * connection to a process that is gone. Default false.
   */
  endsReused: boolean
  /** Answers to POST requests wait for it. */
  answers: Promise<void>
  close(): Promise<void>
}

/** Starts a proxy in front of `target`, http://host:port. */
export async function startClosingProxy(target: string): Promise<ClosingProxy> {
  const used = new WeakSet<Socket>()
  const asked: string[] = []
  const server = createServer((incoming, outgoing) => {
    const { socket, method, url = '' } = incoming
    asked.push(`${method} ${url.split('?')[0]}`)
    if (used.has(socket) && proxy.endsReused) socket.destroy()
    else void forward({ incoming, outgoing, target, until: () => proxy.answers })
    used.add(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const proxy: ClosingProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    endsReused: false,
    answers: Promise.resolve(),
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return proxy
}

async function forward({
  incoming,
  outgoing,
  target,
  until,
}: {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  readonly target: string
  readonly until: () => Promise<void>
}): Promise<void> {
  const { method, url, headers } = incoming
  const forwarded = request(`${target}${url}`, { method, headers, agent: false })
  forwarded.on('error', () => outgoing.destroy())
  incoming.pipe(forwarded)
  const [answer] = (await once(forwarded, 'response').catch(() => [])) as [IncomingMessage?]
  if (answer === undefined) return
  if (method === 'POST') await until()
  // These headers belong to the proxy's connection to the gateway, not to the caller's.
  const { connection: _, 'keep-alive': __, ...kept } = answer.headers
  outgoing.writeHead(answer.statusCode ?? 502, kept)
  answer.pipe(outgoing)
}
