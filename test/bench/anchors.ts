import { setTimeout as sleep } from 'node:timers/promises'
import { Pool } from 'undici'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { startPostgres } from '../support/postgres.ts'
import { quantile } from './load.ts'

/**
 * `node test/bench/anchors.ts`: gas of a completion, and the latency that ANCHOR_INTERVAL_MS adds,
 * at 1, 10 and 100 calls a second and intervals of 0, 250 and 1,000 ms, on the local chain and
 * Postgres. Each call is sent when it is due, also while earlier calls are running.
 */
const RATES = [1, 10, 100]
const INTERVALS_MS = [0, 250, 1_000]
const WARMUP_CALLS = 300
const DURATION_MS = 12_000
const CONNECTIONS_MAX = 512

type Row = {
  readonly intervalMs: number
  readonly rate: number
  readonly gas: number
  readonly batch: number
  readonly p50Ms: number
  readonly p99Ms: number
}

const postgres = await startPostgres({ fsync: 'on' })
const rows: Row[] = []
try {
  for (const intervalMs of INTERVALS_MS) {
    const service = await startAffidavit({
      logLevel: 'warn',
      variables: {
        DATABASE_URL: await postgres.createDatabase(),
        ANCHOR_INTERVAL_MS: String(intervalMs),
      },
    })
    try {
      await sendAtRate(service, { rate: 100, calls: WARMUP_CALLS })
      for (const rate of RATES) rows.push(await measure(service, { intervalMs, rate }))
    } finally {
      await service.stop()
    }
  }
} finally {
  await postgres.stop()
}
for (const row of rows) print(row)

async function measure(
  service: Affidavit,
  { intervalMs, rate }: { readonly intervalMs: number; readonly rate: number },
): Promise<Row> {
  const calls = Math.round((rate * DURATION_MS) / 1_000)
  const answers = await sendAtRate(service, { rate, calls })
  const latencies = answers.map(({ tookMs }) => tookMs).toSorted((left, right) => left - right)
  const hashes = [...new Set(answers.map(({ txHash }) => txHash))]
  const step = Math.ceil(hashes.length / 50)
  const sample = hashes.filter((_, index) => index % step === 0)
  const gas = await Promise.all(sample.map((hash) => fetchGasUsed(service.rpcUrl, hash)))
  const perAnchor = gas.reduce((sum, value) => sum + value, 0) / gas.length
  const batch = calls / hashes.length
  return {
    intervalMs,
    rate,
    batch,
    gas: perAnchor / batch,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
  }
}

type Answer = { readonly txHash: string; readonly tookMs: number }

async function sendAtRate(
  { url, apiKey }: Affidavit,
  { rate, calls }: { readonly rate: number; readonly calls: number },
): Promise<readonly Answer[]> {
  const pool = new Pool(url, { connections: CONNECTIONS_MAX, pipelining: 1 })
  const beganMs = performance.now()
  const sent: Promise<Answer>[] = []
  for (let call = 0; call < calls; call++) {
    // At random times, so that calls do not keep step with the intervals.
    const dueMs = beganMs + ((call + Math.random()) * 1_000) / rate
    await sleep(Math.max(0, dueMs - performance.now()))
    sent.push(ask(pool, apiKey))
  }
  return await Promise.all(sent).finally(() => pool.close())
}

async function ask(pool: Pool, apiKey: string): Promise<Answer> {
  const sentMs = performance.now()
  const response = await pool.request({
    method: 'POST',
    path: '/v1/verified/chat/completions',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({
      model: 'demo/echo',
      messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
    }),
  })
  const text = await response.body.text()
  const txHash = text.match(/"tx_hash":"(0x[0-9a-f]{64})"/)?.[1]
  if (txHash === undefined) throw new Error(`expected an answer with proof, got ${text}`)
  return { txHash, tookMs: performance.now() - sentMs }
}

async function fetchGasUsed(rpcUrl: string, hash: string): Promise<number> {
  const body = { jsonrpc: '2.0', id: 1, method: 'eth_getTransactionReceipt', params: [hash] }
  for (let attempt = 0; attempt < 150; attempt++) {
    const response = await fetch(rpcUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const { result } = (await response.json()) as {
      result: { gasUsed: string; status: string } | null
    }
    if (result?.status === '0x1') return Number(result.gasUsed)
    await sleep(200)
  }
  throw new Error(`anchor ${hash} was not mined within 30 s`)
}

function print({ intervalMs, rate, gas, batch, p50Ms, p99Ms }: Row): void {
  const base = rows.find((row) => row.rate === rate && row.intervalMs === 0)
  const against =
    intervalMs === 0 || base === undefined
      ? ''
      : `;  ${(gas / base.gas).toFixed(2)} × the gas without, p50 ${(p50Ms - base.p50Ms).toFixed(0)} ms more`
  console.log(
    `interval ${String(intervalMs).padStart(4)} ms  ${String(rate).padStart(3)} calls/s  ` +
      `${gas.toFixed(0).padStart(6)} gas a completion (${batch.toFixed(1)} an anchor)  ` +
      `p50 ${p50Ms.toFixed(0).padStart(5)} ms  p99 ${p99Ms.toFixed(0).padStart(5)} ms${against}`,
  )
}
