import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { awaitFreePort } from '#src/local/free-port.ts'
import { type Affidavit, launchAffidavit, makeDataFolder } from '../support/affidavit.ts'
import { isAlive } from '../support/is-alive.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { type Replicas, startReplicas } from '../support/replicas.ts'
import { until } from '../support/until.ts'

let replicas: Replicas
let service: Affidavit
let metricsPort: number
let tiersFile: string
beforeAll(async () => {
  replicas = await startReplicas()
  metricsPort = await findNeighbours()
  tiersFile = join(mkdtempSync(join(tmpdir(), 'affidavit-tiers-')), 'tiers.json')
  writeFileSync(tiersFile, tiersText('tiers-before'))
  service = await replicas.start({
    GATEWAY_PROCESSES: '2',
    METRICS_PORT: String(metricsPort),
    RATE_LIMIT_TIERS_FILE: tiersFile,
  })
})
afterAll(() => replicas.stop())

/** Two neighbouring free ports: each process takes one. */
async function findNeighbours(): Promise<number> {
  for (;;) {
    const port = await awaitFreePort(0)
    const [next] = await Promise.allSettled([awaitFreePort(port + 1)])
    if (next.status === 'fulfilled') return port
  }
}

/** Each call uses a new connection, because the processes share out connections. */
async function ask(): Promise<number> {
  const reply = await fetch(`${service.url}/v1/verified/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${replicas.apiKey}`,
      'content-type': 'application/json',
      connection: 'close',
    },
    body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'Hi' }] }),
  })
  const { tx_hash: txHash } = (await reply.json()) as { readonly tx_hash?: string }
  return txHash === undefined ? 0 : reply.status
}

function tiersText(group: string): string {
  return JSON.stringify({ default_tier: 'free', tiers: { free: { groups: [{ name: group }] } } })
}

/** The names of the group in the only tier, as calls to both processes show it. */
async function groupsSeen(): Promise<readonly string[]> {
  const seen = Array.from({ length: 24 }, async () => {
    const reply = await fetch(`${service.url}/v1/dashboard/rate-limits`, {
      headers: { authorization: `Bearer ${replicas.apiKey}`, connection: 'close' },
    })
    const { usages } = (await reply.json()) as { readonly usages: readonly { model: string }[] }
    return usages.map(({ model }) => model).join()
  })
  return [...new Set(await Promise.all(seen))]
}

/** When a process last applied settings, and whether the last attempt succeeded. */
async function reloadsOf(place: number): Promise<{ readonly at: number; readonly ok: number }> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort + place}/metrics`)).text()
  const reading = (name: string) =>
    readMetrics(text).find((one) => one.name === `affidavit_config_last_reload_${name}`)?.value ??
    -1
  return { at: reading('success_timestamp_seconds'), ok: reading('successful') }
}

async function callsServed(place: number): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort + place}/metrics`)).text()
  return readMetrics(text)
    .filter(({ name }) => name === 'affidavit_calls_total')
    .reduce((sum, { value }) => sum + value, 0)
}

/** Process ids of the gateways, which are children of the started process. */
function gatewayPids(): readonly number[] {
  return readdirSync('/proc').flatMap((name) => {
    try {
      const parent = / \(.*\) \S (\d+)/.exec(readFileSync(`/proc/${name}/stat`, 'latin1'))?.[1]
      return Number(parent) === service.pid ? [Number(name)] : []
    } catch {
      return []
    }
  })
}

it('a gateway that starts is not ended by SIGHUP, and reloads when it is ready', async () => {
  const { child, output } = launchAffidavit({ dataFolder: await makeDataFolder() })
  const pid = child.pid ?? 0
  const ended = once(child, 'exit')
  await until('it listens for signals', () => {
    const [, caught = '0'] =
      /^SigCgt:\s+(\w+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
    return (BigInt(`0x${caught}`) & 1n) === 1n
  })
  expect(output().stdout).toBe('')
  process.kill(pid, 'SIGHUP')
  await until(
    'it has read its settings again',
    () => output().stderr.includes('read again'),
    60_000,
  )
  const lines = output().stderr
  expect(lines.indexOf('ready')).toBeLessThan(lines.indexOf('settings read again'))
  child.kill('SIGTERM')
  expect(await ended).toEqual([0, null])
})

describe('a gateway of two processes', () => {
  it('a gateway of two processes serves at one port by both', async () => {
    expect(await Promise.all(Array.from({ length: 24 }, ask))).toEqual(Array(24).fill(200))
    for (const place of [0, 1]) expect(await callsServed(place)).toBeGreaterThan(0)
    expect(gatewayPids()).toHaveLength(2)
  })

  it('a gateway of two processes has both read their settings again on SIGHUP, all or nothing', async () => {
    const before = await Promise.all([0, 1].map(reloadsOf))
    writeFileSync(tiersFile, tiersText('tiers-after'))
    process.kill(service.pid, 'SIGHUP')
    await until('both have read them', async () => {
      const after = await Promise.all([0, 1].map(reloadsOf))
      return after.every(({ at, ok }, place) => ok === 1 && at > (before[place]?.at ?? at))
    })
    expect(await groupsSeen()).toEqual(['tiers-after'])
    writeFileSync(tiersFile, tiersText('tiers-bad').replace('"tiers-bad"', '7'))
    process.kill(service.pid, 'SIGHUP')
    await until('both have refused them', async () =>
      (await Promise.all([0, 1].map(reloadsOf))).every(({ ok }) => ok === 0),
    )
    expect(await groupsSeen()).toEqual(['tiers-after'])
    writeFileSync(tiersFile, tiersText('tiers-before'))
    expect(service.output().stderr).toContain('RATE_LIMIT_TIERS_FILE: tiers.free.groups.0.name')
  })

  it('a gateway of two processes starts an ended one again, while the other serves', async () => {
    const [first = 0] = gatewayPids()
    process.kill(first, 'SIGKILL')
    await until('it is gone', () => !isAlive(first))
    expect(await ask()).toBe(200)
    await until('another one has taken its place', () => gatewayPids().length === 2, 30_000)
    await until(
      'it serves',
      async () => {
        const served = await Promise.allSettled([callsServed(0), callsServed(1)])
        return served.every(({ status }) => status === 'fulfilled')
      },
      60_000,
    )
    expect(await Promise.all(Array.from({ length: 8 }, ask))).toEqual(Array(8).fill(200))
  })

  it('a gateway of two processes ends with all of its processes', async () => {
    const pids = gatewayPids()
    expect(await service.stop()).toBe(0)
    await until('they are gone', () => !pids.some(isAlive))
  })
})
