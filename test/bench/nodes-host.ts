import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createHub } from '#src/nodes/hub/hub.ts'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import { createLogger } from '#src/observability/logger.ts'
import { createMemoryRegistry, TEST_ACCOUNT, TEST_PROCESS } from '../support/memory-registry.ts'

/**
 * The gateway's side of nodes as a separate process, so that its memory can be measured. nodes.ts
 * starts it with --expose-gc and with `registered` ids node-0, node-1, … It answers each message
 * with one message.
 */
export type HostRequest =
  | { readonly kind: 'memory' }
  | { readonly kind: 'dispatch'; readonly model: string; readonly count: number }
export type HostReply =
  | { readonly kind: 'ready'; readonly url: string }
  /** Bytes after a full collection: resident, and held by V8 and its buffers. */
  | {
      readonly kind: 'memory'
      readonly rss: number
      readonly held: number
      readonly connected: number
    }
  /** Microseconds of each decision, from the call until the frame is on the node's socket. */
  | { readonly kind: 'dispatch'; readonly micros: readonly number[] }

const [model = '', registered = '0'] = process.argv.slice(2)
const registry = createMemoryRegistry()
for (let at = 0; at < Number(registered); at++)
  registry.register({ nodeId: `node-${at}`, state: 'STOPPED', benchmarks: { [model]: 50 } })
const nodes = createHub({
  nodes: registry,
  processId: () => TEST_PROCESS,
  inferences: registry.sink,
  authenticate: async () => ({ accountId: TEST_ACCOUNT, scopes: ['nodes'] as const }),
  limits: NODE_LIMITS,
  now: () => performance.timeOrigin + performance.now(),
  random: Math.random,
  makeId: randomUUID,
  checkImage: async () => undefined,
  log: createLogger({ level: 'silent', destination: { write: () => undefined } }),
})
const server = createServer()
server.on('upgrade', nodes.handleUpgrade)
server.listen(0, '127.0.0.1', () => {
  send({ kind: 'ready', url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
})
process.on('message', (request: HostRequest) => void answer(request))
process.on('disconnect', () => process.exit(0))

async function answer(request: HostRequest): Promise<void> {
  if (request.kind === 'memory') {
    globalThis.gc?.()
    globalThis.gc?.()
    const { rss, heapUsed, external } = process.memoryUsage()
    send({ kind: 'memory', rss, held: heapUsed + external, connected: nodes.status().connected })
    return
  }
  const micros: number[] = []
  for (let turn = 0; turn < request.count; turn++) micros.push(await dispatchOnce(request.model))
  send({ kind: 'dispatch', micros })
}

/**
 * The part of dispatch() before its first wait: it chooses the node, takes its slot, and sends the
 * frame.
 */
async function dispatchOnce(name: string): Promise<number> {
  const request = { model: name, messages: [{ role: 'user', content: 'Hi' }] }
  const call = { model: name, request, accountId: null, signal: new AbortController().signal }
  const start = performance.now()
  const answering = nodes.dispatcher.dispatch(call)
  const micros = (performance.now() - start) * 1_000
  for await (const _ of (await answering).batches);
  return micros
}

function send(reply: HostReply): void {
  process.send?.(reply)
}
