import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { connectScriptedNode, type ScriptedNode } from '../support/scripted-node.ts'
import { quantile } from './load.ts'
import type { HostReply, HostRequest } from './nodes-host.ts'

/**
 * `node test/bench/node-scale.ts`: the gateway's memory for a connected idle node, and the time to
 * choose a node, at 10, 1,000 and 10,000 connected nodes. The comparator is the figure with 10
 * nodes in the same run.
 */
const COUNTS = [10, 1_000, 10_000]
const MODEL = 'bench/model'
const DECISIONS = 2_000
const DIALS_AT_ONCE = 50
const SETTLE_MS = 1_500

const child = fork(
  join(import.meta.dirname, 'nodes-host.ts'),
  [MODEL, String(Math.max(...COUNTS))],
  {
    execArgv: ['--expose-gc'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  },
)
const { url } = await replyOf(child, 'ready')
const nodes: ScriptedNode[] = []
try {
  await run()
} finally {
  for (const { socket } of nodes) socket.terminate()
  child.kill()
}

async function run(): Promise<void> {
  const empty = await ask({ kind: 'memory' }, 'memory')
  const decisions: number[] = []
  for (const count of COUNTS) {
    while (nodes.length < count) await dialSome(Math.min(DIALS_AT_ONCE, count - nodes.length))
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS))
    const { rss, held, connected } = await ask({ kind: 'memory' }, 'memory')
    if (connected !== count) throw new Error(`expected ${count} connected nodes, got ${connected}`)
    await ask({ kind: 'dispatch', model: MODEL, count: DECISIONS / 4 }, 'dispatch')
    const { micros } = await ask({ kind: 'dispatch', model: MODEL, count: DECISIONS }, 'dispatch')
    const sorted = micros.toSorted((left, right) => left - right)
    decisions.push(quantile(sorted, 0.5))
    const perNode = (bytes: number) => `${(bytes / count / 1_024).toFixed(1)} KiB`
    console.log(
      `  ${String(count).padStart(6)} nodes: ${perNode(held - empty.held)} held and ${perNode(rss - empty.rss)} resident ` +
        `per idle node; a decision p50 ${quantile(sorted, 0.5).toFixed(1)} µs, p99 ${quantile(sorted, 0.99).toFixed(1)} µs`,
    )
  }
  const [first = Number.NaN] = decisions
  const ratios = decisions.map((p50) => (p50 / first).toFixed(2))
  console.log(`  p50 of a decision against that with ${COUNTS[0]} nodes: ${ratios.join(', ')}`)
}

async function dialSome(count: number): Promise<void> {
  const dials = Array.from({ length: count }, (_, at) =>
    connectScriptedNode({ url, key: 'bench', nodeId: `node-${nodes.length + at}`, model: MODEL }),
  )
  nodes.push(...(await Promise.all(dials)))
}

function ask<Kind extends HostReply['kind']>(request: HostRequest, kind: Kind) {
  const reply = replyOf(child, kind)
  child.send(request)
  return reply
}

async function replyOf<Kind extends HostReply['kind']>(
  host: ChildProcess,
  kind: Kind,
): Promise<Extract<HostReply, { kind: Kind }>> {
  const [reply] = (await once(host, 'message')) as unknown as readonly [HostReply]
  if (reply.kind !== kind) throw new Error(`expected ${kind}, got ${reply.kind}`)
  return reply as Extract<HostReply, { kind: Kind }>
}
