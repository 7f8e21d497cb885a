import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Affidavit } from '../support/affidavit.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { type Replicas, startReplicas } from '../support/replicas.ts'

const COMPLETIONS = '/v1/verified/chat/completions'

type Answer = { readonly hash: string; readonly tx_hash: string }
type Log = { readonly size: number; readonly head: { readonly size: number } | null }

let replicas: Replicas
let one: Affidavit
let two: Affidavit

const headers = () => ({
  authorization: `Bearer ${replicas.apiKey}`,
  'content-type': 'application/json',
})

async function ask({ url }: Affidavit, text: string): Promise<Answer> {
  const reply = await fetch(url + COMPLETIONS, {
    method: 'POST',
    headers: headers(),
    body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: text }] }),
    signal: AbortSignal.timeout(60_000),
  })
  const body = await reply.text()
  expect([reply.status, body]).toEqual([200, expect.stringContaining('"tx_hash"')])
  return JSON.parse(body) as Answer
}

/** Makes `count` calls, `at` of them at the same time. */
async function askMany(gateway: Affidavit, count: number, at = 8): Promise<Answer[]> {
  const answers: Answer[] = []
  let next = 0
  const callers = Array.from({ length: at }, async () => {
    while (next < count) answers.push(await ask(gateway, `call ${next++} at ${gateway.url}`))
  })
  await Promise.all(callers)
  return answers
}

async function read(gateway: Affidavit, name: string): Promise<number> {
  const text = await (await fetch(gateway.metricsUrl)).text()
  const found = readMetrics(text).find((metric) => metric.name === name)
  return found?.value ?? expect.unreachable(`${name} is no metric`)
}

const commitsOf = (gateway: Affidavit) => read(gateway, 'affidavit_commit_records_count')

/** Expects every answer in the history of `gateway`, with the same anchor. */
async function expectKept({ url }: Affidavit, answers: readonly Answer[]): Promise<void> {
  for (const { hash, tx_hash: txHash } of answers) {
    const reply = await fetch(`${url}${COMPLETIONS}/${hash}`, { headers: headers() })
    expect(await reply.json()).toMatchObject({ hash, tx_hash: txHash })
  }
}

/** The gateway that commits, and the other one. */
async function sides(): Promise<readonly [Affidavit, Affidavit]> {
  const before = await Promise.all([one, two].map(commitsOf))
  await Promise.all([askMany(one, 8), askMany(two, 8)])
  const after = await Promise.all([one, two].map(commitsOf))
  const [ofOne = 0, ofTwo = 0] = after.map((count, place) => count - (before[place] ?? 0))
  return ofOne > ofTwo ? [one, two] : [two, one]
}

/** Log lines at level error; faults of other parts are logged as warnings. */
const errorsOf = ({ output }: Affidavit) =>
  output()
    .stderr.split('\n')
    .filter((line) => line.includes('"level":"error"'))

beforeAll(async () => {
  replicas = await startReplicas()
  ;[one, two] = await Promise.all([replicas.start(), replicas.start()])
})
afterAll(async () => {
  await replicas?.stop()
})

describe('two gateways with one enclave and one database', () => {
  it('two gateways answer the callers of both, while one of them commits', async () => {
    const [holder, follower] = await sides()
    const commits = () => Promise.all([holder, follower].map(commitsOf))
    const before = await commits()
    const [ofHolder, ofFollower] = await Promise.all([askMany(holder, 60), askMany(follower, 60)])
    const [byHolder = 0, byFollower = 0] = (await commits()).map(
      (count, place) => count - (before[place] ?? 0),
    )
    // Zero, unless the machine is so busy that the holder seems late.
    expect(byFollower).toBeLessThan(byHolder / 2)
    await expectKept(one, ofFollower)
    await expectKept(two, ofHolder)
    expect([errorsOf(one), errorsOf(two)]).toEqual([[], []])
  })

  it('two gateways answer callers within a second or so while the committing gateway is stopped', async () => {
    const [holder, follower] = await sides()
    process.kill(holder.pid, 'SIGSTOP')
    const atMs = performance.now()
    const answers = await askMany(follower, 40)
    const tookMs = performance.now() - atMs
    process.kill(holder.pid, 'SIGCONT')
    // A caller's own timeout is one minute.
    expect(tookMs).toBeLessThan(20_000)
    answers.push(...(await askMany(holder, 8)))
    await expectKept(holder, answers)
    expect([errorsOf(one), errorsOf(two)]).toEqual([[], []])
  })

  it('two gateways answer callers while the committing gateway is killed', async () => {
    const [holder, follower] = await sides()
    const waiting = askMany(follower, 120)
    await expect.poll(() => read(follower, 'affidavit_calls_in_flight')).toBeGreaterThan(0)
    await holder.kill()
    const answers = await waiting
    await expectKept(follower, answers)
    expect(errorsOf(follower)).toEqual([])
    // A restarted gateway finds the other one at work, or takes the turn, here with another
    // setting.
    const next = await replicas.start({ ANCHOR_INTERVAL_MS: '250' })
    await expectKept(next, await askMany(next, 8))
    if (holder === one) one = next
    else two = next
  })

  it('two gateways stop one after the other, and everything is in a block', async () => {
    const answers = await askMany(one, 16)
    const waiting = askMany(two, 60)
    expect(await one.stop()).toBe(0)
    answers.push(...(await waiting))
    await expectKept(two, answers)
    const notary = replicas.enclaves[0]?.notary ?? expect.unreachable()
    await expect
      .poll(async () => {
        const log = (await (await fetch(`${two.url}/v1/log/${notary}`)).json()) as Log
        return log.size - (log.head?.size ?? 0)
      })
      .toBe(0)
    expect(await two.stop()).toBe(0)
  })
})
