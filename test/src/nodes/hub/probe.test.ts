import { afterEach, expect, it } from 'vitest'
import { FAR_OFF_MS } from '../../../support/at-once.ts'
import {
  eventually,
  MODEL,
  type NodesStage,
  openNodesStage,
  readAll,
  untilTended,
} from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerError,
  answerSilence,
  answerWith,
  inTurn,
} from '../../../support/scripted-node.ts'

let stage: NodesStage
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 0, runs: 0, probes: 0, timers: 0 })
})

const NEW = { state: null }

it('a new node is asked something short before it gets work, which is not counted as served', async () => {
  stage = await openNodesStage()
  const node = await stage.connect({ nodeId: 'new', registered: NEW })
  await eventually(() => stage.registry.stateOf('new') === 'RUNNING', 'verified')
  expect(node.calls[0]?.chat_request).toMatchObject({
    model: MODEL,
    stream: true,
    max_tokens: 64,
  })
  expect(stage.registry.writes.slice(0, 3)).toEqual([
    `connected new ${MODEL}`,
    'state new RUNNING_BENCHMARKING',
    'state new RUNNING',
  ])
  expect(stage.registry.served).toEqual([])
})

it('a new node gets no work before it was verified, but a caller may wait for that', async () => {
  stage = await openNodesStage({ waitMs: FAR_OFF_MS, firstTokenMs: FAR_OFF_MS })
  const isAsked = Promise.withResolvers<void>()
  const slow: AnswerScript = async (call, node) => {
    await isAsked.promise
    return answerWith('one two')(call, node)
  }
  const node = await stage.connect({
    registered: NEW,
    answer: inTurn(slow, answerWith('answer')),
  })
  expect(stage.nodes.status().serving).toBe(0)
  const answered = stage.dispatch().then(readAll)
  await eventually(() => stage.nodes.status().queued === 1, 'the caller waits')
  isAsked.resolve()
  await answered
  expect(node.calls).toHaveLength(2)
})

it.each([
  ['is silent', answerSilence()],
  ['fails', answerError(500)],
  ['refuses', answerError(400)],
] as const)(
  'a new node that %s is asked again, and stopped as failed when it goes',
  async (_, script) => {
    stage = await openNodesStage({ probeRetryMs: 20 })
    const node = await stage.connect({ nodeId: 'new', registered: NEW, answer: script })
    await eventually(() => node.calls.length >= 2, 'asked again')
    expect(stage.registry.stateOf('new')).toBe('RUNNING_BENCHMARKING')
    await node.close()
    await eventually(() => stage.registry.stateOf('new') === 'STOPPED_BENCHMARK_FAILED', 'stopped')
  },
)

it('a node that goes while it is probed is stopped, and not degraded', async () => {
  stage = await openNodesStage({ probeIntervalMs: 20, firstTokenMs: 5_000 })
  const node = await stage.connect({ nodeId: 'old', answer: answerSilence() })
  await eventually(() => node.calls.length === 1, 'probed')
  await node.close()
  await eventually(() => stage.nodes.status().connected === 0, 'gone')
  await eventually(() => stage.nodes.status().writes === 0, 'stored')
  expect(stage.registry.writes.at(-1)).toBe('state old STOPPED')
})

it('a node that is full is not probed', async () => {
  stage = await openNodesStage({
    slots: 1,
    probeIntervalMs: 20,
    firstTokenMs: FAR_OFF_MS,
    seenMs: 20,
  })
  const node = await stage.connect({ answer: answerSilence() })
  const abort = new AbortController()
  const call = stage.dispatch({ signal: abort.signal }).catch(() => null)
  for (let round = 0; round < 3; round++) await untilTended(stage)
  expect(node.calls).toHaveLength(1)
  abort.abort(new Error('left'))
  await call
})

it('probes at one time are bounded', async () => {
  stage = await openNodesStage({ probesMax: 2, firstTokenMs: FAR_OFF_MS, seenMs: 20 })
  for (let count = 0; count < 5; count++)
    await stage.connect({ registered: NEW, answer: answerSilence() })
  await untilTended(stage)
  expect(stage.nodes.status().probes).toBe(2)
})
