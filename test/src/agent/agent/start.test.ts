import { expect, it } from 'vitest'
import { AgentFailure } from '#src/agent/registration.ts'
import { useAgentStage } from '../../../support/agent-stage.ts'
import {
  answerWith,
  type BackendScript,
  startScriptedBackend,
  textChunk,
  writeEvents,
} from '../../../support/scripted-backend.ts'
import { NODE_ID, NODE_KEY } from '../../../support/scripted-node-gateway.ts'

const stage = useAgentStage()

/** Answers as Ollama does for embedding models. */
function refuseChat(...embedding: readonly string[]): BackendScript {
  return (response, body, request) => {
    const model = String(body.model)
    if (!embedding.includes(model)) return answerWith('a', 'b')(response, body, request)
    const error = { message: `"${model}" does not support chat` }
    response.writeHead(400).end(JSON.stringify({ error }))
  }
}

it('an agent that starts asks, saves and measures in the order of the public client, then connects', async () => {
  stage.gateway.known.node = {
    node_id: NODE_ID,
    name_alias: 'one',
    status: 'Stopped',
    cpu_model: null,
  }
  const agent = stage.start({ models: ['model-a'] })
  const node = await stage.nodeAt(0)
  expect(stage.gateway.calls.map(({ method, path }) => `${method} ${path}`)).toEqual([
    `GET /v1/node/info?node_id=${NODE_ID}`,
    'POST /v1/node/info',
    `GET /v1/node/benchmark?node_id=${NODE_ID}&model=model-a`,
    'POST /v1/node/benchmark',
  ])
  expect(stage.gateway.calls[1]?.body).toEqual({
    node_id: NODE_ID,
    gpu_model: null,
    vram: 0,
    gpu_count: 0,
    cpu_model: 'Test',
    cpu_count: 1,
    ram: 1024,
    network_download_speed: null,
    network_upload_speed: null,
    operating_system: 'Test 1',
    version: '0.1.0',
  })
  expect(stage.gateway.calls[3]?.body).toMatchObject({ node_id: NODE_ID, model_name: 'model-a' })
  expect(node.headers).toMatchObject({
    authorization: `Bearer ${NODE_KEY}`,
    'node-id': NODE_ID,
    model: 'model-a',
    'model-type': 'LLM',
    'node-features': 'cancel, drain, extra-members, large-frames',
  })
  expect(node.headers).not.toHaveProperty('node-models')
  await expect
    .poll(() => agent.status())
    .toEqual({
      phase: 'connected',
      models: ['model-a'],
      running: 0,
      connections: 1,
    })
})

it('an agent that starts asks for nothing twice that the gateway knows', async () => {
  const { node } = await stage.connect()
  expect(stage.gateway.calls.map(({ method }) => method)).toEqual(['GET', 'GET', 'GET'])
  expect(node.headers).toMatchObject({ model: 'model-a', 'node-models': 'model-b' })
})

it('an agent describes its machine again when it is another one', async () => {
  await (await stage.connect()).agent.stop()
  const known = { gpu_model: 'Old', vram: 24_000, gpu_count: 1 }
  stage.gateway.known.node = { ...stage.gateway.known.node, ...known }
  await stage.connect()
  await expect.poll(() => stage.gateway.known.node).toMatchObject({ gpu_model: null, vram: 0 })
  const posts = stage.gateway.calls.filter(({ method }) => method === 'POST')
  expect(posts.map(({ path }) => path)).toEqual(['/v1/node/info'])
})

it('an agent measures slow models again, leaves out those that stay slow, and fails when none is left', async () => {
  stage.gateway.known.benchmarks.set('model-a', 1e9)
  const agent = stage.start({ tokensPerSecondMin: 9e8 })
  expect((await stage.nodeAt(0)).headers).not.toHaveProperty('node-models')
  expect(stage.gateway.known.benchmarks.has('model-b')).toBe(false)
  await agent.stop()
  await expect(stage.start({ models: ['model-b'], tokensPerSecondMin: 9e8 }).done).rejects.toThrow(
    /fewer than/,
  )
})

it('an agent serves its other models when the backend refuses to chat with one', async () => {
  stage.script = refuseChat('model-a')
  const agent = stage.start()
  expect((await stage.nodeAt(0)).headers).toMatchObject({ model: 'model-b' })
  expect([...stage.gateway.known.benchmarks.keys()]).toEqual(['model-b'])
  expect(agent.logLines.join('')).toContain('model-a: \\"model-a\\" does not support chat')
})

it('an agent tries again while the backend refuses to chat with every model', async () => {
  const refuse = refuseChat('model-a', 'model-b')
  // Refuses both models in the first round, whose last call is model-b's.
  stage.script = (response, body, request) => {
    refuse(response, body, request)
    if (body.model === 'model-b') stage.script = answerWith('a', 'b')
  }
  const agent = stage.start()
  expect((await stage.nodeAt(0)).headers).toMatchObject({ 'node-models': 'model-b' })
  expect(agent.logLines.join('')).toContain('does not support chat; model-b')
})

it('an agent measures again, and leaves out no model, when the backend ends during a benchmark', async () => {
  const port = Number(new URL(stage.backend.url).port)
  stage.gateway.known.benchmarks.set('model-a', 100)
  stage.script = () => stage.backend.stop()
  const agent = stage.start()
  await expect.poll(() => agent.logLines.join('')).toContain('the backend cannot be used')
  stage.backend = await startScriptedBackend(answerWith('a', 'b'), ['model-a', 'model-b'], port)
  expect((await stage.nodeAt(0)).headers).toMatchObject({ 'node-models': 'model-b' })
})

it.each([
  ['a key that is not valid', { apiKey: 'wrong' }, /not valid/],
  ['models that no header can name', { models: ['a,b'] }, /name/],
])('an agent fails to start with %s', async (_, more, message) => {
  if ('models' in more) {
    await stage.backend.stop()
    stage.backend = await startScriptedBackend(answerWith('a'), ['a,b'])
  }
  const { done } = stage.start(more)
  await expect(done).rejects.toThrow(AgentFailure)
  await expect(done).rejects.toThrow(message)
})

it('an agent serves models whose names contain blanks', async () => {
  await stage.backend.stop()
  const models = ['Llama 3 8B.gguf', 'My Model', ' outer']
  stage.backend = await startScriptedBackend(answerWith('a', 'b'), models)
  stage.start()
  expect((await stage.nodeAt(0)).headers).toMatchObject({
    model: 'Llama 3 8B.gguf',
    'node-models': 'My Model',
  })
})

it.each([
  [
    'a database that is away',
    503,
    '{"response":"NOK","error":{"code":"database_unavailable","message":"m"}}',
  ],
  ['a proxy that knows no gateway', 404, '<html>'],
  ['an answer of another program', 200, 'hello'],
])('an agent that starts tries again after %s', async (_, status, text) => {
  stage.gateway.known.refusal = { status, text }
  const agent = stage.start()
  await expect.poll(() => stage.gateway.calls.length).toBeGreaterThan(3)
  stage.gateway.known.refusal = null
  await stage.nodeAt(0)
  await expect.poll(() => agent.status().phase).toBe('connected')
})

it('an agent waits for a backend that is not up yet, or has not loaded its model', async () => {
  const port = Number(new URL(stage.backend.url).port)
  await stage.backend.stop()
  const agent = stage.start({ models: ['model-b'] })
  await expect.poll(() => agent.logLines.join('')).toContain('ECONNREFUSED')
  stage.backend = await startScriptedBackend(answerWith('a', 'b'), ['model-a'], port)
  await expect.poll(() => agent.logLines.join('')).toContain('does not list model-b')
  await stage.backend.stop()
  stage.backend = await startScriptedBackend(answerWith('a', 'b'), ['model-a', 'model-b'], port)
  expect((await stage.nodeAt(0)).headers).toMatchObject({ model: 'model-b' })
})

it('an agent that is stopped ends its benchmark', async () => {
  stage.script = (response) => writeEvents(response, [textChunk('a')])
  const agent = stage.start({ benchmark: { durationMs: 60_000, concurrency: 1 } })
  await expect.poll(() => stage.backend.open()).toBe(1)
  await agent.stop()
  await expect.poll(() => stage.backend.open()).toBe(0)
  await agent.done
})
