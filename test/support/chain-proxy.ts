import { createServer, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** What a proxy does with one exchange; `methods` are the methods of the calls in the request. */
export type ProxyAction =
  | { readonly kind: 'pass' }
  /** The chain gets the request; the caller loses the connection before the answer. */
  | { readonly kind: 'drop_answer' }
  | { readonly kind: 'answer'; readonly status?: number; readonly body: string | Buffer }
  /** The chain gets the request; the caller gets the answer after `alter`. */
  | { readonly kind: 'alter'; readonly alter: (answer: string) => string }
  | { readonly kind: 'hang' }

export type ChainProxy = {
  readonly url: string
  /** HTTP exchanges so far. */
  requests(): number
  /** Open connections now. */
  connections(): Promise<number>
  /** `body` is the request's JSON. */
  behave(action: (methods: readonly string[], body: string) => ProxyAction): void
  stop(): Promise<void>
}

/** Starts a proxy between a client and a chain's endpoint; it misbehaves as `behave` says. */
export async function startChainProxy(target: string): Promise<ChainProxy> {
  let decide: Parameters<ChainProxy['behave']>[0] = () => ({ kind: 'pass' })
  let requests = 0
  const server = createServer(async (incoming, outgoing) => {
    requests += 1
    const parts: Buffer[] = []
    for await (const part of incoming) parts.push(part)
    const body = Buffer.concat(parts)
    const action = decide(methodsOf(body), body.toString('utf8'))
    if (action.kind === 'hang') return
    if (action.kind === 'answer') {
      outgoing.writeHead(action.status ?? 200).end(action.body)
      return
    }
    const answer = await forward(target, body).catch(() => null)
    if (answer === null || action.kind === 'drop_answer') outgoing.destroy()
    else reply(outgoing, action.kind === 'alter' ? action.alter(answer) : answer)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    requests: () => requests,
    connections: () =>
      new Promise((resolve, reject) => {
        server.getConnections((error, count) => (error ? reject(error) : resolve(count)))
      }),
    behave: (action) => {
      decide = action
    },
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function methodsOf(body: Buffer): readonly string[] {
  const value: unknown = JSON.parse(body.toString('utf8'))
  const calls = (Array.isArray(value) ? value : [value]) as readonly { readonly method: string }[]
  return calls.map((call) => call.method)
}

function reply(outgoing: ServerResponse, body: string): void {
  outgoing.writeHead(200, { 'content-type': 'application/json' }).end(body)
}

function forward(target: string, body: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': body.length }
    const outgoing = request(target, { method: 'POST', headers, agent: false }, async (answer) => {
      const parts: Buffer[] = []
      try {
        for await (const part of answer) parts.push(part)
        resolve(Buffer.concat(parts).toString('utf8'))
      } catch (error) {
        reject(error)
      }
    })
    outgoing.once('error', reject)
    outgoing.end(body)
  })
}
