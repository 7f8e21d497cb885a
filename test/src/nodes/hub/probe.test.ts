import { afterEach, expect, it } from 'vitest'
import { eventually, MODEL, type NodesStage, openNodesStage } from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerError,
  answerSilence,
  answerWith,
  finishChunk,
  inTurn,
  textChunk,
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
  stage = await openNodesStage({ waitMs: 2_000 })
  const slow: AnswerScript = async (call, node) => {
    await new Promise((resolve) => setTimeout(resolve, 50))
    return answerWith('one two')(call, node)
  }
  const node = await stage.connect({
    registered: NEW,
    answer: inTurn(slow, answerWith('answer')),
  })
  expect(stage.nodes.status().serving).toBe(0)
  await stage.dispatch().then(async ({ batches }) => {
    for await (const _ of batches);
  })
  expect(node.calls).toHaveLength(2)
})

it('a new node is degraded when it is too slow', async () => {
  stage = await openNodesStage({ tokensPerSecondMin: 40 })
  const slow: AnswerScript = async ({ id }, node) => {
    for (let count = 0; count < 10; count++) {
      node.sendRun(id, { chunk: textChunk('word'), status: 1 })
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    node.sendRun(id, { chunk: finishChunk(), status: 1 })
    node.sendRun(id, { status: 2 })
  }
  await stage.connect({ nodeId: 'new', registered: NEW, answer: slow })
  await eventually(() => stage.registry.stateOf('new') === 'RUNNING_DEGRADED', 'degraded')
  expect(stage.nodes.status().serving).toBe(0)
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

it('an idle node is probed now and then, and degraded when it has become bad', async () => {
  stage = await openNodesStage({ probeIntervalMs: 50, failuresMax: 10 })
  await stage.connect({ nodeId: 'old', answer: inTurn(answerWith('fine'), answerError(500)) })
  await eventually(() => stage.registry.stateOf('old') === 'RUNNING_DEGRADED', 'degraded')
})

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
  stage = await openNodesStage({ slots: 1, probeIntervalMs: 20, firstTokenMs: 5_000 })
  const node = await stage.connect({ answer: answerSilence() })
  const abort = new AbortController()
  const call = stage.dispatch({ signal: abort.signal }).catch(() => null)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(node.calls).toHaveLength(1)
  abort.abort(new Error('left'))
  await call
})

it('probes at one time are bounded', async () => {
  stage = await openNodesStage({ probesMax: 2, firstTokenMs: 5_000 })
  for (let count = 0; count < 5; count++)
    await stage.connect({ registered: NEW, answer: answerSilence() })
  await new Promise((resolve) => setTimeout(resolve, 60))
  expect(stage.nodes.status().probes).toBe(2)
})
