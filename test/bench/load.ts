import { Pool } from 'undici'

/** A closed loop: each connection sends its next request when the last answer is complete. */
export type LoadPlan = {
  readonly origin: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly connections: number
  readonly warmupMs: number
  readonly durationMs: number
  /** Ends after this many requests, unless the time ends first. */
  readonly requestsMax?: number
}

/**
 * Latencies are from sending to the last byte; `txHashes` are the distinct hashes in the answers.
 */
export type LoadResult = {
  readonly requests: number
  readonly errors: number
  readonly requestsPerSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly txHashes: ReadonlySet<string>
}

/** Runs the plan against a server on loopback, and gives the measurements after the warm-up. */
export async function runLoad(plan: LoadPlan): Promise<LoadResult> {
  const pool = new Pool(plan.origin, {
    connections: plan.connections,
    pipelining: 1,
    headersTimeout: 30_000,
    bodyTimeout: 30_000,
  })
  const latencies: number[] = []
  const txHashes = new Set<string>()
  let errors = 0
  const begin = performance.now() + plan.warmupMs
  const end = begin + plan.durationMs
  let left = plan.requestsMax ?? Number.POSITIVE_INFINITY
  async function work(): Promise<void> {
    while (performance.now() < end && left-- > 0) {
      const sent = performance.now()
      const answer = await send(pool, plan)
      const received = performance.now()
      if (sent < begin || received > end) continue
      if (!answer.ok) errors += 1
      latencies.push(received - sent)
      if (answer.txHash) txHashes.add(answer.txHash)
    }
  }
  await Promise.all(Array.from({ length: plan.connections }, work))
  const tookMs = Math.min(performance.now(), end) - begin
  await pool.close()
  latencies.sort((a, b) => a - b)
  return {
    requests: latencies.length,
    errors,
    requestsPerSecond: latencies.length / (tookMs / 1000),
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
    txHashes,
  }
}

async function send(pool: Pool, plan: LoadPlan): Promise<{ ok: boolean; txHash: string | null }> {
  const response = await pool.request({
    method: 'POST',
    path: plan.path,
    headers: { 'content-type': 'application/json', ...plan.headers },
    body: plan.body,
  })
  const text = await response.body.text()
  return {
    ok: response.statusCode === 200,
    txHash: text.match(/"tx_hash":"(0x[0-9a-f]{64})"/)?.[1] ?? null,
  }
}

/** The value that `share` of the sorted values lie below; NaN without values. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}
