import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { LEASE_SECONDS } from '#src/storage/process-lease.ts'
import { type Deployment, startDeployment } from '../support/deployment/deployment.ts'
import { until } from '../support/until.ts'

const CALLERS = 12
const CALLS_EACH_AT_LEAST = 12
const KILLS = 4
/**
 * Every caller may be in the middle of a call, which stays open until the killed gateway's lease
 * ends.
 */
const NEXT_CALL_MS = (LEASE_SECONDS + 15) * 1000
const PATIENCE_MS = 90_000

type Answer = { readonly hash: string; readonly tx_hash: string }
type Fault = { readonly error: { readonly code: string } }
type Stored = Answer & { readonly request: { readonly user: string } }

let service: Deployment

beforeAll(async () => {
  service = await startDeployment()
})

afterAll(() => service?.stop())

const url = (query = '') => `${service.gateways[0]?.origin}/v1/verified/chat/completions${query}`

function post(key: string): Promise<Response> {
  return fetch(url(), {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.key}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: JSON.stringify({
      model: 'demo/echo',
      user: key,
      messages: [{ role: 'user', content: key }],
    }),
    signal: AbortSignal.timeout(20_000),
  })
}

/**
 * Asks again and again under one key, as clients of this interface do, until there is an answer;
 * null when the gateway says that there may be no answer.
 */
async function insist(key: string, seen: Map<string, number>): Promise<Answer | null> {
  const deadline = performance.now() + PATIENCE_MS
  while (performance.now() < deadline) {
    const reply = await post(key).catch(() => null)
    const body = (await reply?.json().catch(() => null)) as Partial<Answer & Fault> | null
    const { hash, tx_hash } = body ?? {}
    if (reply?.status === 200 && hash !== undefined && tx_hash !== undefined)
      return { hash, tx_hash }
    const outcome = body?.error?.code ?? 'connection'
    seen.set(outcome, (seen.get(outcome) ?? 0) + 1)
    if (outcome === 'idempotency_outcome_unknown') return null
    await sleep(100 + Math.random() * 200)
  }
  throw new Error(`no answer to ${key}`)
}

async function fetchRecords(): Promise<readonly Stored[]> {
  const headers = { authorization: `Bearer ${service.key}` }
  const records: Stored[] = []
  let query = '?limit=1000'
  for (;;) {
    const reply = await fetch(url(query), { headers })
    const { completions, cursor } = (await reply.json()) as {
      readonly completions: readonly Stored[]
      readonly cursor: string | null
    }
    records.push(...completions)
    if (cursor === null) return records
    query = `?limit=1000&cursor=${encodeURIComponent(cursor)}`
  }
}

it('a gateway makes each verified completion once under its key, however often it is killed', async () => {
  const seen = new Map<string, number>()
  const answers = new Map<string, Answer>()
  const unknown: string[] = []
  let kills = 0
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    for (let call = 0; call < CALLS_EACH_AT_LEAST || kills < KILLS; call++) {
      const key = `key-${caller}-${call}`
      const answer = await insist(key, seen)
      if (answer === null) unknown.push(key)
      else answers.set(key, answer)
    }
  })
  const { program } = service.gateways[0] ?? expect.unreachable()
  const awayMs: number[] = []
  for (; kills < KILLS; kills++) {
    await sleep(150 + Math.random() * 250)
    const { asked } = service.provider
    const askedBefore = asked.size
    await until('a call is under way', () => asked.size > askedBefore, NEXT_CALL_MS)
    await program.end('SIGKILL')
    const killedAtMs = performance.now()
    program.start()
    await service.waitUntilReady()
    awayMs.push(performance.now() - killedAtMs)
  }
  await Promise.all(callers)
  expect(answers.size + unknown.length).toBeGreaterThanOrEqual(CALLERS * CALLS_EACH_AT_LEAST)
  // The enclave lives, and finishes the calls that a gateway sent to it. Only calls that were not
  // sent yet are unknown.
  expect(unknown.length).toBeLessThan(CALLERS)
  // A caller was in the middle of a call when the gateway was killed, and asked again while the
  // result was open. On a very busy machine the gateway may be away for longer than its lease; then
  // the result is no longer open.
  expect(seen.get('connection') ?? 0).toBeGreaterThan(0)
  if (Math.min(...awayMs) < LEASE_SECONDS * 500)
    expect(seen.get('idempotency_in_progress') ?? 0).toBeGreaterThan(0)

  expect([...service.provider.asked].filter(([, times]) => times > 1)).toEqual([])
  for (const key of unknown) {
    const again = await post(key)
    const isKnown = again.status === 200
    const { error } = (await again.json()) as Partial<Fault>
    if (!isKnown) expect(error?.code).toBe('idempotency_outcome_unknown')
    expect(service.provider.asked.get(key) ?? 0).toBe(isKnown ? 1 : 0)
  }

  const byKey = Map.groupBy(await fetchRecords(), ({ request }) => request.user)
  for (const [key, { hash, tx_hash: txHash }] of answers) {
    expect(byKey.get(key)?.map((record) => [record.hash, record.tx_hash])).toEqual([[hash, txHash]])
    const again = await post(key)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(await again.json()).toMatchObject({ hash, tx_hash: txHash })
  }
})
