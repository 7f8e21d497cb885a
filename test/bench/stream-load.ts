import { setMaxListeners } from 'node:events'
import { Pool } from 'undici'
import { quantile } from './load.ts'

/** A closed loop of connections, each with one stream after the other; milliseconds. */
export type StreamPlan = {
  readonly origin: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly connections: number
  readonly streams: number
}

export type StreamResult = {
  readonly errors: number
  /** Chunks with content in one stream, median. */
  readonly chunks: number
  /** From sending to the first chunk with content. */
  readonly firstP50Ms: number
  readonly firstP99Ms: number
  /** Between two chunks with content. */
  readonly gapP50Ms: number
  readonly gapP99Ms: number
}

/** Runs the streams and gives the times of their chunks. */
export async function runStreams(plan: StreamPlan): Promise<StreamResult> {
  const pool = new Pool(plan.origin, {
    connections: plan.connections,
    pipelining: 1,
    bodyTimeout: 60_000,
  })
  const firsts: number[] = []
  const gaps: number[] = []
  const counts: number[] = []
  let errors = 0
  let left = plan.streams
  async function work(): Promise<void> {
    while (left-- > 0) {
      const times = await readStream(pool, plan)
      const [first] = times.arrivals
      if (!times.isWhole || first === undefined) errors += 1
      else firsts.push(first)
      counts.push(times.arrivals.length)
      times.arrivals.forEach((at, index) => {
        const before = times.arrivals[index - 1]
        if (before !== undefined) gaps.push(at - before)
      })
    }
  }
  await Promise.all(Array.from({ length: plan.connections }, work))
  await pool.close()
  for (const list of [firsts, gaps, counts]) list.sort((left, right) => left - right)
  return {
    errors,
    chunks: quantile(counts, 0.5),
    firstP50Ms: quantile(firsts, 0.5),
    firstP99Ms: quantile(firsts, 0.99),
    gapP50Ms: quantile(gaps, 0.5),
    gapP99Ms: quantile(gaps, 0.99),
  }
}

type StreamTimes = { readonly arrivals: readonly number[]; readonly isWhole: boolean }

/**
 * The time of each chunk with content, from sending on. Chunks that come in one piece have the same
 * time.
 */
async function readStream(pool: Pool, { path, headers, body }: StreamPlan): Promise<StreamTimes> {
  const sent = performance.now()
  const response = await pool.request({
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json', ...headers },
    body,
  })
  const arrivals: number[] = []
  let rest = ''
  let isDone = false
  for await (const part of response.body) {
    const at = performance.now() - sent
    const events = (rest + String(part)).split('\n\n')
    rest = events.pop() ?? ''
    for (const event of events) if (/"content":"[^"]/.test(event)) arrivals.push(at)
    // Reads on to the end; otherwise the connection could not be used again.
    if (events.includes('data: [DONE]')) isDone = true
  }
  return { arrivals, isWhole: isDone && response.statusCode === 200 }
}

/** Streams that are open at once, and their results. */
export type OpenStreams = {
  /** Opens `count` more; resolves when all have their head. */
  open(count: number): Promise<void>
  /** Events so far, open streams, and streams that were refused or broke off. */
  load(): { readonly events: number; readonly open: number; readonly failed: number }
  /** The reason of the first failure, as far as it is known; null without failures. */
  failure(): string | null
  /** Resolves when all streams have ended. */
  ended(): Promise<void>
  /** Leaves all open streams. */
  close(): Promise<void>
}

/** Opens streams of one request, each on a new connection. Events are counted, not parsed. */
export function openStreams(plan: Omit<StreamPlan, 'connections' | 'streams'>): OpenStreams {
  const pool = new Pool(plan.origin, { pipelining: 1, headersTimeout: 60_000, bodyTimeout: 60_000 })
  const left = new AbortController()
  setMaxListeners(0, left.signal)
  const endings: Promise<void>[] = []
  const count = { events: 0, open: 0, failed: 0 }
  let failure: string | null = null

  async function begin(): Promise<void> {
    const response = await pool
      .request({
        method: 'POST',
        path: plan.path,
        headers: { 'content-type': 'application/json', ...plan.headers },
        body: plan.body,
        signal: left.signal,
      })
      .catch((error: Error) => error)
    if (response instanceof Error) return fail(response.message)
    if (response.statusCode !== 200)
      return fail(`${response.statusCode} ${await response.body.text()}`)
    count.open += 1
    endings.push(read(response.body))
  }

  async function read(body: AsyncIterable<Buffer>): Promise<void> {
    let last: Buffer | null = null
    try {
      for await (const part of body) {
        count.events += countEnds(part)
        last = part
      }
      if (last?.includes('event: error') === true) fail(String(last))
    } catch (error) {
      if (!left.signal.aborted) fail(error instanceof Error ? error.message : String(error))
    }
    count.open -= 1
  }

  function fail(reason: string): void {
    count.failed += 1
    failure ??= reason.slice(0, 200)
  }

  return {
    open: async (more) => {
      await Promise.all(Array.from({ length: more }, begin))
    },
    load: () => ({ ...count }),
    failure: () => failure,
    ended: async () => {
      await Promise.all(endings)
      await pool.close()
    },
    close: async () => {
      left.abort()
      await Promise.all(endings)
      await pool.destroy()
    },
  }
}

/**
 * Counts the ends of events in a piece. An end that is cut between two pieces is missed, a few in
 * thousands.
 */
function countEnds(part: Buffer): number {
  let count = 0
  for (let at = part.indexOf('\n\n'); at >= 0; at = part.indexOf('\n\n', at + 2)) count += 1
  return count
}
