import { setTimeout as sleep } from 'node:timers/promises'
import { Agent as HttpAgent, request as send } from 'undici'
import { expect, it } from 'vitest'
import { createRandom, type Random } from '#src/local/demo/random.ts'
import { type FaultyProxy, startFaultyProxy } from '../support/faulty-proxy.ts'

import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import { FAST_TIMINGS, startTestAgent, type TestAgent } from '../support/run-agent.ts'
import {
  type BackendScript,
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  usageChunk,
  writeEvents,
} from '../support/scripted-backend.ts'
import { until } from '../support/until.ts'

const AGENTS = 200
const REQUESTS = 2_000
/** Callers at once. */
const CALLERS = 64
const MODELS = ['model-a', 'model-b', 'model-c', 'model-d']
/**
 * Troubles for each request. Requests set the pace, so that a slow machine gets no more troubles
 * than a fast one.
 */
const TROUBLES_PER_REQUEST = 0.25
/** Fixes every random choice; the times of events depend on the machine. */
const SEED = 'chaos of 2026-11-21'

/**
 * No caller may wait longer: three attempts, the wait for a free node, and the rest of an answer.
 */
const CALLER_TIMEOUT_MS = 15_000
const LIMITS = {
  firstTokenMs: 2_000,
  tokenMs: 2_000,
  runMs: 5_000,
  waitMs: 2_000,
  drainMs: 2_000,
  finishGraceMs: 300,
  slots: 3,
  silenceMs: 500,
  silenceTimeoutMs: 1_000,
  takeoverMs: 300,
  asideMs: 1_000,
  asideMaxMs: 4_000,
  tickMs: 20,
  tendMs: 100,
  closeTimeoutMs: 500,
  probeRetryMs: 1_000,
  probesMax: 16,
}
/**
 * The errors that a caller may get in place of an answer; `not_ready` when the database is late on
 * a busy machine.
 */
const ERRORS = ['node_error', 'node_timeout', 'no_available_inference_nodes', 'not_ready']
const WORDS = 8

type Stage = {
  readonly stage: PlainStage
  readonly backend: ScriptedBackend
  readonly proxy: FaultyProxy
  readonly agents: TestAgent[]
  readonly nodeIds: readonly string[]
  /** Ends a node's agent at once and starts it again. */
  restart(position: number): void
  /** Resolves when all replaced agents have ended. */
  ended(): Promise<void>
}

async function openStage(random: Random): Promise<Stage> {
  const backend = await startScriptedBackend(backendScript(random), MODELS)
  const stage = await openPlainStage({ limits: LIMITS, settings: { logLevel: 'warn' } })
  const proxy = await startFaultyProxy(stage.gateway.port)
  const modelsOf = (position: number) =>
    [0, 1].map((offset) => MODELS[(position + offset) % MODELS.length] ?? '')
  const nodeIds: string[] = []
  for (let position = 0; position < AGENTS; position++)
    nodeIds.push(await stage.register(modelsOf(position)))
  const ending = new Set<Promise<void>>()
  const start = (position: number) =>
    startTestAgent({
      gatewayUrl: proxy.url,
      apiKey: stage.gateway.key,
      nodeId: nodeIds[position] ?? '',
      backendUrl: backend.url,
      models: modelsOf(position),
      timings: { ...FAST_TIMINGS, pingMs: 1_000, drainMs: 0 },
    })
  const agents = nodeIds.map((_, position) => start(position))
  return {
    stage,
    backend,
    proxy,
    agents,
    nodeIds,
    restart(position) {
      const ended = agents[position]?.stop() ?? Promise.resolve()
      ending.add(ended)
      void ended.finally(() => ending.delete(ended))
      agents[position] = start(position)
    },
    ended: async () => void (await Promise.all(ending)),
  }
}

/** Repeats the prompt and counts up to WORDS. Sometimes it fails, stalls or breaks off instead. */
function backendScript(random: Random): BackendScript {
  return async (response, body) => {
    const [{ content }] = body.messages as readonly [{ readonly content: string }]
    const fate = random()
    if (fate < 0.03)
      return void response.writeHead(500).end('{"error":{"message":"out of memory"}}')
    if (fate < 0.05) return
    const fatalWord = fate < 0.1 ? Math.floor(random() * WORDS) : WORDS
    for (let word = 0; word < WORDS && !response.destroyed; word++) {
      if (word === fatalWord && fate < 0.075) return
      if (word === fatalWord) return void response.destroy()
      writeEvents(response, [textChunk(`${content}/${word} `)])
      await sleep(random() * 8)
    }
    writeEvents(response, [textChunk('', 'stop'), usageChunk(WORDS), '[DONE]'])
    response.end()
  }
}

const answerTo = (content: string) =>
  Array.from({ length: WORDS }, (_, word) => `${content}/${word} `).join('')

/**
 * The troubles: connections are cut and frozen, and agents restarted. Each call of `strike` makes
 * one.
 */
function createTrouble({ proxy, restart }: Stage, random: Random) {
  const counts = { cut: 0, frozen: 0, restarted: 0 }
  const thawing = new Set<Promise<void>>()

  function strike(): void {
    const standing = proxy.connections()
    const victim = standing[Math.floor(random() * standing.length)]
    const choice = random()
    if (choice < 0.5) {
      victim?.cut()
      counts.cut++
    } else if (choice < 0.9 && victim !== undefined) {
      victim.freeze()
      counts.frozen++
      const thawed = sleep(random() * FROZEN_MAX_MS).then(() => victim.thaw())
      thawing.add(thawed)
      void thawed.then(() => thawing.delete(thawed))
    } else {
      restart(Math.floor(random() * AGENTS))
      counts.restarted++
    }
  }

  return { strike, counts, over: async () => void (await Promise.all(thawing)) }
}

const FROZEN_MAX_MS = 3_000

/** How long after the trouble everything may take to recover. */
const SETTLE_MS = 15_000

type Outcome = 'answered' | 'left' | (string & {})

/**
 * Makes one call. Gives its outcome; throws when the result is neither a whole answer nor a clear
 * error.
 */
async function call(
  stage: PlainStage,
  number: number,
  { random, agent }: { readonly random: Random; readonly agent: HttpAgent },
): Promise<Outcome> {
  const content = `request-${number}`
  const isStream = random() < 0.6
  const leavesAfterMs = random() < 0.1 ? random() * 150 : null
  const abort = new AbortController()
  const timer = setTimeout(
    () =>
      abort.abort(leavesAfterMs === null ? new Error(`${content} had no answer in time`) : LEFT),
    leavesAfterMs ?? CALLER_TIMEOUT_MS,
  )
  try {
    const { statusCode, body } = await send(`${stage.gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.gateway.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: MODELS[Math.floor(random() * MODELS.length)],
        stream: isStream,
        messages: [{ role: 'user', content }],
      }),
      signal: abort.signal,
      dispatcher: agent,
    })
    const text = await body.text()
    return isStream ? streamOutcome(text, content) : wholeOutcome(statusCode, text, content)
  } catch (error) {
    if (abort.signal.reason === LEFT) return 'left'
    throw error
  } finally {
    clearTimeout(timer)
  }
}

const LEFT = new Error('the caller left')

function wholeOutcome(status: number, text: string, content: string): Outcome {
  const { choices, usage, error } = JSON.parse(text)
  if (status !== 200) return error.code
  if (
    choices[0].message.content !== answerTo(content) ||
    choices[0].finish_reason !== 'stop' ||
    usage.completion_tokens !== WORDS
  )
    throw new Error(`${content} got ${text}`)
  return 'answered'
}

function streamOutcome(text: string, content: string): Outcome {
  if (text.startsWith('{')) return JSON.parse(text).error.code
  const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'))
  const last = events.at(-1) ?? ''
  const data = events
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice(6)))
  const said = data.map(({ choices }) => choices[0].delta.content ?? '').join('')
  const isWhole = last === 'data: [DONE]' && data.at(-1).choices[0].finish_reason === 'stop'
  if (isWhole && said === answerTo(content)) return 'answered'
  if (!last.startsWith('event: error\ndata: ') || !answerTo(content).startsWith(said))
    throw new Error(`${content} got ${text}`)
  return JSON.parse(last.slice('event: error\ndata: '.length)).error.code
}

/** Open handles of this process by kind: a leak would increase their number. */
function countHandles(): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo())
    if (HANDLES.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1
  return counts
}

const HANDLES = /^(TCP|TLS|Pipe|Timeout|Immediate|HTTP)/

const isNothingHeld = ({
  slotsInUse,
  runs,
  queued,
  probes,
  handshakes,
}: ReturnType<PlainStage['nodes']['status']>) =>
  slotsInUse + runs + queued + probes + handshakes === 0

const eventually = (isSo: () => boolean, what: string) => until(what, isSo, SETTLE_MS)

it(`the gateway answers ${REQUESTS} callers while ${AGENTS} agents are killed, stalled and come back, then holds nothing`, async () => {
  const random = createRandom(SEED)
  const warnings: Error[] = []
  const onWarning = (warning: Error) => void warnings.push(warning)
  process.on('warning', onWarning)
  await sleep(100)
  const before = countHandles()
  const opened = await openStage(random)
  const { stage, backend, proxy, agents } = opened
  const { nodes, gateway } = stage
  await eventually(() => nodes.status().serving === AGENTS, 'all agents serve')

  const httpAgent = new HttpAgent({ connections: CALLERS })
  const trouble = createTrouble(opened, random)
  const outcomes = new Map<Outcome, number>()
  let next = 0
  const callOneByOne = async () => {
    while (next < REQUESTS) {
      const outcome = await call(stage, next++, { random, agent: httpAgent })
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
      if (random() < TROUBLES_PER_REQUEST) trouble.strike()
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, callOneByOne))
  await trouble.over()
  expect(Math.min(...Object.values(trouble.counts))).toBeGreaterThan(10)
  await httpAgent.close()

  expect([...outcomes.values()].reduce((sum, count) => sum + count, 0)).toBe(REQUESTS)
  for (const outcome of outcomes.keys()) expect(['answered', 'left', ...ERRORS]).toContain(outcome)
  expect(outcomes.get('answered')).toBeGreaterThan(REQUESTS / 2)

  await opened.ended()
  await eventually(() => isNothingHeld(nodes.status()), 'no slot, run or caller is left')
  await eventually(() => nodes.status().serving === AGENTS, 'every agent is back')
  await eventually(() => backend.open() === 0, 'the backend serves nobody')

  await Promise.all(agents.map((agent) => agent.stop()))
  await eventually(() => nodes.status().sockets === 0, 'no socket of a node is left')
  await proxy.stop()
  // Agents share the fetch of this process, which keeps idle connections for some seconds.
  const countConnections = () =>
    new Promise((resolve) => gateway.app.server.getConnections((_, count) => resolve(count)))
  await expect.poll(countConnections, { timeout: 15_000 }).toBe(0)
  await stage.stop()
  await backend.stop()
  expect(nodes.status()).toEqual({
    connected: 0,
    serving: 0,
    slotsInUse: 0,
    runs: 0,
    queued: 0,
    probes: 0,
    imageBytes: 0,
    handshakes: 0,
    sockets: 0,
    timers: 0,
    writes: 0,
  })
  // Fewer handles are fine: a timer of the test runner may have run at the beginning.
  await eventually(
    () => Object.entries(countHandles()).every(([kind, count]) => count <= (before[kind] ?? 0)),
    'no handle of the process is left',
  )
  process.off('warning', onWarning)
  expect(warnings).toEqual([])
})
