import { afterAll, beforeAll, expect, it } from 'vitest'
import { startReverseProxy } from '../support/deployment/reverse-proxy.ts'
import { NATS, startNatsServer } from '../support/nats-server.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { createMeasuredNode } from '../support/register-node.ts'
import { FAST_TIMINGS, startTestAgent, type TestAgent } from '../support/run-agent.ts'
import {
  startScriptedBackend,
  textChunk,
  usageChunk,
  writeEvents,
} from '../support/scripted-backend.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

const MODEL = 'model-a'

const started = new AsyncDisposableStack()
let machine: Machine
let origin: string
let agents: readonly TestAgent[]

beforeAll(async () => {
  if (!NATS.isMet) return
  const nats = await startNatsServer()
  started.defer(() => nats.stop())
  machine = await startMachine({
    gateways: 2,
    settings: () => ({ NATS_URL: nats.url, DRAIN_DELAY_MS: '2000' }),
  })
  started.defer(() => machine.stop())
  const proxy = await startReverseProxy(
    machine.gateways.map((gateway) => Number(new URL(gateway.origin).port)),
  )
  started.defer(() => proxy.stop())
  origin = proxy.url
  const backend = await startScriptedBackend(
    async (response) => {
      writeEvents(response, [textChunk('hello'), textChunk('', 'stop'), usageChunk(1), '[DONE]'])
      response.end()
    },
    [MODEL],
  )
  started.defer(() => backend.stop())
  const apiKey = machine.key
  agents = await Promise.all(
    [1, 2, 3].map(async () => {
      const nodeId = await createMeasuredNode({ url: origin, key: apiKey }, [MODEL])
      const timings = { ...FAST_TIMINGS, pingMs: 1_000 }
      const dial = { gatewayUrl: origin, backendUrl: backend.url, models: [MODEL] }
      return startTestAgent({ ...dial, apiKey, nodeId, timings })
    }),
  )
  started.defer(async () => void (await Promise.all(agents.map((agent) => agent.stop()))))
  await until('every agent is connected', () =>
    agents.every((agent) => agent.status().phase === 'connected'),
  )
})
afterAll(() => started.disposeAsync())

/** One plain call; gives its status and, of a refusal, its text. */
async function callPlain(): Promise<string> {
  const reply = await fetch(`${origin}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${machine.key}` },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hi' }] }),
  })
  const text = await reply.text()
  return reply.ok ? 'ok' : `${reply.status} ${text}`
}

async function metric(at: 0 | 1, name: string): Promise<number | undefined> {
  const text = await (await fetch(machine.gateways[at]?.metricsUrl ?? '')).text()
  return readMetrics(text).find((sample) => sample.name === name)?.value
}

it.runIf(NATS.isMet)(
  NATS.title(
    'the runbook for retiring a gateway is followed under load, and no caller of either gateway notices',
  ),
  async () => {
    const outcomes: string[] = []
    const hashes: string[] = []
    let isOver = false
    const work = async (call: () => Promise<string>) => {
      while (!isOver) outcomes.push(await call().catch((error: unknown) => String(error)))
    }
    const verified = async (at: string) => {
      const { hash } = await machine.complete({ at: { origin: at } })
      hashes.push(hash)
      return 'ok'
    }
    const [retired, stays] = machine.gateways
    const load = [
      ...[1, 2, 3].map(() => work(() => verified(origin))),
      // Waits at the one for what the other commits.
      ...[1, 2].map(() => work(() => verified(stays?.origin ?? ''))),
      ...[1, 2].map(() => work(callPlain)),
    ]
    await until('calls are served', () => outcomes.length > 50, 30_000)

    const variables = {
      METRICS: retired.metricsUrl,
      OTHER: stays?.origin ?? '',
      OTHER_METRICS: stays?.metricsUrl ?? '',
    }
    await walkPage('retire-a-gateway', { ...machine.walking, variables }, async (walk) => {
      await walk.section('Before you begin')
      // A call whose answer is on its way when it is stopped.
      await machine.provider.way.behave('hang')
      const long = machine.complete({ at: retired })
      await until(
        'it is at the provider',
        async () => ((await metric(0, 'affidavit_calls_in_flight')) ?? 0) > 0,
      )
      const stopping = walk.section('Stop it')
      await until(
        'it says so',
        async () => (await fetch(`${retired.origin}/readyz`)).status === 503,
      )
      await machine.provider.way.behave('pass')
      hashes.push((await long).hash)
      await stopping
      expect(retired.program.isRunning).toBe(false)
      const served = outcomes.length
      await until('the other serves', () => outcomes.length > served + 50, 30_000)
      await until(
        'it has no peer',
        async () => (await metric(1, 'affidavit_bus_peers')) === 0,
        30_000,
      )
      const shown = await walk.section('How to know that it worked')
      expect(shown.at(-1)?.output).toContain('alive: 1\n')
    })
    isOver = true
    await Promise.all(load)
    expect(outcomes.filter((outcome) => outcome !== 'ok')).toEqual([])
    await until(
      'the nodes are at the other one',
      async () => (await metric(1, 'affidavit_nodes_serving')) === agents.length,
    )
    expect(new Set(hashes).size).toBe(hashes.length)
    await until(
      'nothing waits',
      async () => (await metric(1, 'affidavit_anchors_pending')) === 0,
      30_000,
    )
    const audit = await machine.audit('--any-measurement')
    expect(audit.stdout).toMatch(/\nCLEAN/)
  },
  120_000,
)
