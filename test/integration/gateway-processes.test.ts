import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { awaitFreePort } from '../../src/local/free-port.ts'
import type { Affidavit } from '../support/affidavit.ts'
import { isAlive } from '../support/is-alive.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { type Replicas, startReplicas } from '../support/replicas.ts'
import { until } from '../support/until.ts'

let replicas: Replicas
let service: Affidavit
let metricsPort: number
beforeAll(async () => {
  replicas = await startReplicas()
  // The second process takes the next one.
  metricsPort = await awaitFreePort(0)
  service = await replicas.start({ GATEWAY_PROCESSES: '2', METRICS_PORT: String(metricsPort) })
})
afterAll(() => replicas.stop())

/** Each call on a connection of its own: connections are what processes are given. */
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

async function callsServed(place: number): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort + place}/metrics`)).text()
  return readMetrics(text)
    .filter(({ name }) => name === 'affidavit_calls_total')
    .reduce((sum, { value }) => sum + value, 0)
}

/** Process ids of the gateways, which are children of the one that was started. */
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

describe('a gateway of two processes', () => {
  it('serves at one port by both', async () => {
    expect(await Promise.all(Array.from({ length: 24 }, ask))).toEqual(Array(24).fill(200))
    for (const place of [0, 1]) expect(await callsServed(place)).toBeGreaterThan(0)
    expect(gatewayPids()).toHaveLength(2)
  })

  it('starts one that ended again, while the other serves', async () => {
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

  it('does not start when one of its processes cannot, and leaves none behind', async () => {
    const lost = { GATEWAY_PROCESSES: '2', DATABASE_URL: 'postgres://127.0.0.1:1/none' }
    await expect(replicas.start(lost)).rejects.toThrow('DATABASE_URL cannot be used')
  })

  it('ends with all of its processes', async () => {
    const pids = gatewayPids()
    expect(await service.stop()).toBe(0)
    await until('they are gone', () => !pids.some(isAlive))
  })
})
