import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { startForwarder } from './forwarder-process.ts'
import { runLoad } from './load.ts'
import { runStreams, type StreamResult } from './stream-load.ts'

/**
 * `node test/bench/plain-chat.ts`: plain chat as `npm start` serves it (gateway → node agent over its WebSocket → demo
 * backend) against the backend itself and a bare Koa + undici forwarder in front of it, in one run on one machine.
 */
const WARMUP_MS = 2_000
const DURATION_MS = 6_000
const CONNECTIONS = [1, 32, 256]
/** Pause of the backend before each chunk of the streamed part, so that chunks come one by one as from a model. */
const CHUNK_DELAY_MS = 5
const STREAMS = 60

type Target = {
  readonly name: string
  readonly origin: string
  readonly path: string
  readonly key: string | null
}

await withService({}, measureWhole)
await withService({ DEMO_DELAY_MS: String(CHUNK_DELAY_MS) }, measureStreams)

async function withService(
  variables: Readonly<Record<string, string>>,
  measure: (targets: readonly Target[]) => Promise<void>,
): Promise<void> {
  const affidavit = await startAffidavit({ logLevel: 'warn', variables })
  const forwarder = await startForwarder(affidavit.providerUrl)
  try {
    await awaitNode(affidavit)
    await measure([
      { name: 'backend itself', origin: affidavit.providerUrl, path: '/v1/chat/completions', key: null },
      { name: 'bare Koa + undici', origin: forwarder.origin, path: '/v1/chat/completions', key: null },
      {
        name: 'plain chat',
        origin: affidavit.url,
        path: '/v1/chat/completions',
        key: affidavit.apiKey,
      },
    ])
  } finally {
    forwarder.process.kill()
    await affidavit.stop()
    await affidavit.remove()
  }
}

async function measureWhole(targets: readonly Target[]): Promise<void> {
  for (const connections of CONNECTIONS) {
    const rows = []
    for (const target of targets) {
      const plan = { ...requestTo(target, { words: 8, stream: false }), connections }
      const row = await runLoad({ ...plan, warmupMs: WARMUP_MS, durationMs: DURATION_MS })
      rows.push(row)
      console.log(
        `whole  ${String(connections).padStart(3)} conn  ${target.name.padEnd(18)} ` +
          `${row.requestsPerSecond.toFixed(0).padStart(6)} req/s  p50 ${row.p50Ms.toFixed(2).padStart(7)} ms  ` +
          `p99 ${row.p99Ms.toFixed(2).padStart(7)} ms  errors ${row.errors}`,
      )
    }
    const [backend, bare, plain] = rows
    if (!backend || !bare || !plain) throw new Error('expected three targets')
    console.log(
      `       plain chat is ${(plain.requestsPerSecond / bare.requestsPerSecond).toFixed(2)} of the forwarder's req/s (aim: 0.60); added over ` +
        `the backend: p50 ${(plain.p50Ms - backend.p50Ms).toFixed(2)} ms, p99 ${(plain.p99Ms - backend.p99Ms).toFixed(2)} ms ` +
        `(forwarder ${(bare.p50Ms - backend.p50Ms).toFixed(2)} and ${(bare.p99Ms - backend.p99Ms).toFixed(2)})`,
    )
  }
}

async function measureStreams(targets: readonly Target[]): Promise<void> {
  for (const connections of [1, 10]) {
    const rows: StreamResult[] = []
    for (const target of targets) {
      const row = await runStreams({
        ...requestTo(target, { words: 100, stream: true }),
        connections,
        streams: STREAMS,
      })
      rows.push(row)
      console.log(
        `stream ${String(connections).padStart(3)} conn  ${target.name.padEnd(18)} ${row.chunks} chunks, ` +
          `first p50 ${row.firstP50Ms.toFixed(2)} p99 ${row.firstP99Ms.toFixed(2)} ms, ` +
          `between p50 ${row.gapP50Ms.toFixed(2)} p99 ${row.gapP99Ms.toFixed(2)} ms, errors ${row.errors}`,
      )
    }
    const [backend, bare, plain] = rows
    if (!backend || !bare || !plain) throw new Error('expected three targets')
    console.log(
      `       added to the first token ${(plain.firstP50Ms - backend.firstP50Ms).toFixed(2)} ms (forwarder ` +
        `${(bare.firstP50Ms - backend.firstP50Ms).toFixed(2)}), between chunks ${(plain.gapP50Ms - backend.gapP50Ms).toFixed(2)} ms ` +
        `(forwarder ${(bare.gapP50Ms - backend.gapP50Ms).toFixed(2)})`,
    )
  }
}

function requestTo(
  { origin, path, key }: Target,
  says: { readonly words: number; readonly stream: boolean },
) {
  const content = Array.from({ length: says.words }, (_, at) => `word${at}`).join(' ')
  const body = { model: 'demo/echo', stream: says.stream, messages: [{ role: 'user', content }] }
  const headers: Readonly<Record<string, string>> = key === null ? {} : { authorization: `Bearer ${key}` }
  return { origin, path, headers, body: JSON.stringify(body) }
}

/** The agent connects a moment after the gateway serves. */
async function awaitNode({ url }: Affidavit): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: readonly { id: string }[] }
    if (data.some(({ id }) => id === 'demo/echo')) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error('expected a node to serve demo/echo within 20 s')
}
