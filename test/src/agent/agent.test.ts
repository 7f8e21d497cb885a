import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AgentFailure } from '../../../src/agent/registration.ts'
import {
  FAST_TIMINGS,
  startTestAgent,
  type TestAgent,
  type TestAgentOptions,
} from '../../support/run-agent.ts'
import {
  answerWith,
  type BackendScript,
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  usageChunk,
  writeEvents,
} from '../../support/scripted-backend.ts'
import {
  NODE_ID,
  NODE_KEY,
  type NodeSocket,
  type ScriptedNodeGateway,
  startScriptedNodeGateway,
} from '../../support/scripted-node-gateway.ts'

let gateway: ScriptedNodeGateway
let backend: ScriptedBackend
let script: BackendScript = answerWith('a', 'b')
const agents: TestAgent[] = []

beforeEach(async () => {
  script = answerWith('a', 'b')
  gateway = await startScriptedNodeGateway()
  backend = await startScriptedBackend((...call) => script(...call), ['model-a', 'model-b'])
})
afterEach(async () => {
  await Promise.all(agents.splice(0).map((agent) => agent.stop()))
  await Promise.all([gateway.stop(), backend.stop()])
})

function start(more: Partial<TestAgentOptions> = {}): TestAgent {
  const agent = startTestAgent({
    gatewayUrl: gateway.url,
    apiKey: NODE_KEY,
    nodeId: NODE_ID,
    backendUrl: backend.url,
    ...more,
  })
  agents.push(agent)
  return agent
}

/** Starts an agent that has its benchmarks, and gives its socket. */
async function connect(
  more: Partial<TestAgentOptions> = {},
): Promise<{ agent: TestAgent; node: NodeSocket }> {
  for (const model of ['model-a', 'model-b']) gateway.known.benchmarks.set(model, 100)
  const agent = start(more)
  return { agent, node: await nodeAt(0) }
}

async function nodeAt(index: number): Promise<NodeSocket> {
  await expect.poll(() => gateway.nodes.length, { timeout: 5_000 }).toBeGreaterThan(index)
  const node = gateway.nodes[index]
  if (node === undefined) throw new Error('expected a node')
  return node
}

function chat(node: NodeSocket, id: string, body: object = {}, model = 'model-a'): void {
  node.send({ id, model, chat_request: { model, messages: [{ role: 'user', content: 'hi' }], ...body } })
}

const framesOf = (node: NodeSocket, id: string) => node.frames.filter(({ request_id: of }) => of === id)
const lastOf = (node: NodeSocket, id: string) => framesOf(node, id).at(-1)
const statusOf = (node: NodeSocket, id: string) => lastOf(node, id)?.status

describe('an agent that starts', () => {
  it('asks, saves and measures in the order of the public client, then connects', async () => {
    gateway.known.node = { node_id: NODE_ID, name_alias: 'one', status: 'Stopped', cpu_model: null }
    const agent = start({ models: ['model-a'] })
    const node = await nodeAt(0)
    expect(gateway.calls.map(({ method, path }) => `${method} ${path}`)).toEqual([
      `GET /v1/node/info?node_id=${NODE_ID}`,
      'POST /v1/node/info',
      `GET /v1/node/benchmark?node_id=${NODE_ID}&model=model-a`,
      'POST /v1/node/benchmark',
    ])
    expect(gateway.calls[1]?.body).toEqual({
      ...{
        node_id: NODE_ID,
        gpu_model: null,
        vram: 0,
        gpu_count: 0,
        cpu_model: 'Test',
        cpu_count: 1,
        ram: 1024,
      },
      ...{
        network_download_speed: null,
        network_upload_speed: null,
        operating_system: 'Test 1',
        version: '0.1.0',
      },
    })
    expect(gateway.calls[3]?.body).toMatchObject({ node_id: NODE_ID, model_name: 'model-a' })
    expect(node.headers).toMatchObject({
      ...{ authorization: `Bearer ${NODE_KEY}`, 'node-id': NODE_ID, model: 'model-a', 'model-type': 'LLM' },
      'node-features': 'cancel, drain',
    })
    expect(node.headers).not.toHaveProperty('node-models')
    await expect
      .poll(() => agent.status())
      .toEqual({
        ...{ phase: 'connected', models: ['model-a'], running: 0, connections: 1 },
      })
  })

  it('asks for nothing twice that the gateway knows', async () => {
    const { node } = await connect()
    expect(gateway.calls.map(({ method }) => method)).toEqual(['GET', 'GET', 'GET'])
    expect(node.headers).toMatchObject({ model: 'model-a', 'node-models': 'model-b' })
  })

  it('measures again what was too slow, leaves out a model that stays so, and fails when none is left', async () => {
    gateway.known.benchmarks.set('model-a', 1e9)
    const agent = start({ tokensPerSecondMin: 9e8 })
    expect((await nodeAt(0)).headers).not.toHaveProperty('node-models')
    expect(gateway.known.benchmarks.has('model-b')).toBe(false)
    await agent.stop()
    await expect(start({ models: ['model-b'], tokensPerSecondMin: 9e8 }).done).rejects.toThrow(/fewer than/)
  })

  it.each([
    ['a key that is not valid', { apiKey: 'wrong' }, /not valid/],
    ['models that no header can name', { models: ['a,b'] }, /name/],
  ])('fails for %s', async (_, more, message) => {
    if ('models' in more) {
      await backend.stop()
      backend = await startScriptedBackend(answerWith('a'), ['a,b'])
    }
    const { done } = start(more)
    await expect(done).rejects.toThrow(AgentFailure)
    await expect(done).rejects.toThrow(message)
  })

  it('fails for a node that the gateway does not know', async () => {
    gateway.known.node = null
    await expect(start().done).rejects.toThrow('knows no node')
  })

  it.each([
    [
      'a database that is away',
      503,
      '{"response":"NOK","error":{"code":"database_unavailable","message":"m"}}',
    ],
    ['a proxy that knows no gateway', 404, '<html>'],
    ['an answer of another program', 200, 'hello'],
  ])('tries again after %s', async (_, status, text) => {
    gateway.known.refusal = { status, text }
    const agent = start()
    await expect.poll(() => gateway.calls.length).toBeGreaterThan(3)
    gateway.known.refusal = null
    await nodeAt(0)
    await expect.poll(() => agent.status().phase).toBe('connected')
  })

  it('waits for a backend that is not up yet, or has not loaded its model', async () => {
    await backend.stop()
    const agent = start({ models: ['model-b'] })
    await expect.poll(() => agent.logLines.join('')).toContain('the backend cannot be used')
    const { port } = new URL(backend.url)
    expect(Number(port)).toBeGreaterThan(0)
    expect(agent.status().connections).toBe(0)
    await agent.stop()
    expect(agent.status().phase).toBe('stopped')
  })

  it('ends a benchmark when it is stopped', async () => {
    script = (response) => writeEvents(response, [textChunk('a')])
    const agent = start({ benchmark: { durationMs: 60_000, concurrency: 1 } })
    await expect.poll(() => backend.open()).toBe(1)
    await agent.stop()
    await expect.poll(() => backend.open()).toBe(0)
    await agent.done
  })
})

describe('a connected agent', () => {
  it('answers a chat frame with its chunks, the usage, and the end', async () => {
    const { node } = await connect()
    chat(node, 'r1', { stream: false })
    await expect.poll(() => statusOf(node, 'r1')).toBe(2)
    const frame = { request_id: 'r1', error: null, status: 1 }
    expect(framesOf(node, 'r1')).toEqual([
      ...[textChunk('a'), textChunk('b'), textChunk('', 'stop'), usageChunk(2)].map((chunk) => ({
        ...frame,
        chunk,
      })),
      { ...frame, chunk: null, status: 2 },
    ])
    expect(backend.requests.at(-1)).toMatchObject({
      model: 'model-a',
      stream: true,
      stream_options: { include_usage: true },
    })
  })

  it('serves many requests and several models at once', async () => {
    script = async (response, { model }) => {
      writeEvents(response, [textChunk(String(model))])
      await sleep(50)
      writeEvents(response, [textChunk('', 'stop'), usageChunk(1), '[DONE]'])
      response.end()
    }
    const { agent, node } = await connect()
    for (let index = 0; index < 20; index++) chat(node, `r${index}`, {}, index % 2 ? 'model-a' : 'model-b')
    await expect.poll(() => agent.status().running).toBe(20)
    await expect.poll(() => node.frames.filter(({ status }) => status === 2).length).toBe(20)
    for (let index = 0; index < 20; index++)
      expect(framesOf(node, `r${index}`)[0]).toMatchObject({
        chunk: textChunk(index % 2 ? 'model-a' : 'model-b'),
      })
    expect(agent.status().running).toBe(0)
  })

  it("sends the backend the frame's model, whatever the request says", async () => {
    const { node } = await connect()
    chat(node, 'r1', { model: 'http://elsewhere/' })
    await expect.poll(() => statusOf(node, 'r1')).toBe(2)
    expect(backend.requests.at(-1)?.model).toBe('model-a')
  })

  it.each([
    [
      'a refusal',
      422,
      (status: number): BackendScript =>
        (response) => {
          response.writeHead(status).end('{"error":{"message":"too long"}}')
        },
      'too long',
    ],
    [
      'a code that frames do not know',
      500,
      (): BackendScript => (response) => {
        response.writeHead(503).end('{"error":{"message":"busy"}}')
      },
      'busy',
    ],
    [
      'an error in the stream',
      400,
      (): BackendScript => (response) => {
        writeEvents(response, [textChunk('a'), { error: { message: 'bad', code: 400 } }])
        response.end()
      },
      'bad',
    ],
    [
      'a break',
      500,
      (): BackendScript => (response) => {
        writeEvents(response, [textChunk('a')])
        setTimeout(() => response.destroy(), 10)
      },
      'broke off',
    ],
    [
      'garbage',
      500,
      (): BackendScript => (response) => {
        response.end('data: {{{\n\n')
      },
      'no JSON object',
    ],
  ])('tells %s of its backend with status code %d', async (_, status, makeScript, message) => {
    script = makeScript(status)
    const { node } = await connect()
    chat(node, 'r1')
    await expect.poll(() => statusOf(node, 'r1')).toBe(3)
    expect(lastOf(node, 'r1')).toMatchObject({
      chunk: null,
      error: { status_code: status, message: expect.stringContaining(message) },
    })
  })

  it('tells a chunk that no frame can carry as an error, and stays connected', async () => {
    script = (response) => {
      writeEvents(response, [textChunk('x'.repeat(1024 * 1024 - 150)), '[DONE]'])
      response.end()
    }
    const { node } = await connect()
    chat(node, 'r1')
    await expect.poll(() => statusOf(node, 'r1')).toBe(3)
    script = answerWith('a')
    chat(node, 'r2')
    await expect.poll(() => statusOf(node, 'r2')).toBe(2)
  })

  it('refuses a model it does not serve, a chat frame out of form, and more runs than it takes', async () => {
    script = (response) => writeEvents(response, [textChunk('a')])
    const { agent, node } = await connect()
    chat(node, 'r1', {}, 'model-z')
    node.send({ id: 'r2', model: 'model-a', chat_request: null })
    await expect.poll(() => statusOf(node, 'r2')).toBe(3)
    expect(lastOf(node, 'r1')).toMatchObject({ error: { status_code: 404 } })
    expect(lastOf(node, 'r2')).toMatchObject({ error: { status_code: 400 } })
    for (let index = 0; index < 65; index++) chat(node, `n${index}`)
    await expect.poll(() => statusOf(node, 'n64')).toBe(3)
    expect(lastOf(node, 'n64')).toMatchObject({ error: { status_code: 429 } })
    expect(agent.status().running).toBe(64)
  })

  it("aborts the backend's call when it is told to, and ends the run as done", async () => {
    script = (response) => writeEvents(response, [textChunk('a')])
    const { agent, node } = await connect()
    chat(node, 'r1')
    chat(node, 'r2')
    await expect.poll(() => [framesOf(node, 'r1').length, framesOf(node, 'r2').length]).toEqual([1, 1])
    node.send({ protocol: 'cancel', data: { ...CONTROL, request_id: 'r1' } })
    node.send({ protocol: 'cancel', data: { ...CONTROL, request_id: 'unknown' } })
    await expect.poll(() => lastOf(node, 'r1')).toMatchObject({ chunk: null, error: null, status: 2 })
    await expect.poll(() => backend.open()).toBe(1)
    expect(agent.status().running).toBe(1)
  })

  it("aborts its backend's calls when the connection is cut", async () => {
    script = (response) => writeEvents(response, [textChunk('a')])
    const { agent, node } = await connect()
    chat(node, 'r1')
    await expect.poll(() => backend.open()).toBe(1)
    node.cut()
    await expect.poll(() => backend.open()).toBe(0)
    expect(backend.left()).toBe(1)
    await nodeAt(1)
    await expect.poll(() => agent.status()).toMatchObject({ phase: 'connected', running: 0, connections: 2 })
  })

  it('waits for a gateway that reads slowly instead of keeping the whole answer', async () => {
    const state = { written: 0 }
    script = (response) => {
      response.writeHead(200)
      const event = `data: ${JSON.stringify(textChunk('x'.repeat(100_000)))}\n\n`
      const more = () => {
        while (state.written < 400) {
          state.written += 1
          if (!response.write(event)) return
        }
        response.end('data: [DONE]\n\n')
      }
      response.on('drain', more)
      more()
    }
    const { node } = await connect()
    node.pause()
    chat(node, 'r1')
    await expect.poll(() => state.written).toBeGreaterThan(20)
    await sleep(300)
    const written = state.written
    await sleep(200)
    expect(state.written).toBe(written)
    expect(written).toBeLessThan(300)
    node.resume()
    await expect.poll(() => statusOf(node, 'r1'), { timeout: 10_000 }).toBe(2)
    expect(framesOf(node, 'r1')).toHaveLength(401)
  })
})

const CONTROL = { protocol_version: '1.0', message_type: 1, node_id: NODE_ID }

describe('control frames', () => {
  it('are answered: pings with their nonce, health checks with the load', async () => {
    const { node } = await connect()
    node.send({
      protocol: 'ping-pong',
      data: { ...CONTROL, nonce: 'p1', rtt: 0, ping_streak: 0, miss_streak: 0 },
    })
    node.send({ protocol: 'health-check', data: { ...CONTROL, nonce: 'h1' } })
    await expect.poll(() => node.frames.length).toBe(2)
    expect(node.frames[0]).toMatchObject({
      protocol: 'ping-pong',
      data: { ...CONTROL, message_type: 2, nonce: 'p1', api_ping_time: [expect.anything()] },
    })
    expect(node.frames[1]).toMatchObject({
      protocol: 'health-check',
      data: { ...CONTROL, message_type: 2, nonce: 'h1', cpu_percent: 1, gpus: [] },
    })
  })

  it('read the load once for many checks at a time', async () => {
    const counts = { readings: 0 }
    const readLoad = async () => {
      counts.readings += 1
      await sleep(50)
      return { cpuPercent: 1, ramPercent: 2, diskPercent: 3, gpus: [] }
    }
    const { node } = await connect({ readLoad })
    for (let index = 0; index < 100; index++)
      node.send({ protocol: 'health-check', data: { ...CONTROL, nonce: `h${index}` } })
    await expect.poll(() => node.frames.length).toBe(100)
    expect(counts.readings).toBeLessThan(10)
  })

  it('of another node, garbage, and binary frames are ignored', async () => {
    const { agent, node } = await connect()
    node.send({ protocol: 'ping-pong', data: { ...CONTROL, node_id: 'other', nonce: 'p1' } })
    for (const text of ['', '{', '[]', '{"protocol":"x","data":1}', '{"id":1}', '\u0000']) node.send(text)
    node.sendBytes(Buffer.from([0xff, 0x00]))
    chat(node, 'r1')
    await expect.poll(() => statusOf(node, 'r1')).toBe(2)
    expect(node.frames.every(({ request_id: of }) => of === 'r1')).toBe(true)
    expect(agent.status().connections).toBe(1)
  })

  it('that ask to reconnect are obeyed once nothing runs', async () => {
    script = (response) => {
      writeEvents(response, [textChunk('a')])
      setTimeout(() => answerWith('b')(response, {}, undefined as never), 100)
    }
    const { node } = await connect()
    chat(node, 'r1')
    await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
    const reconnect = { ...CONTROL, message_type: 3, nonce: 'n', reconnect_request: true }
    node.send({ protocol: 'ping-pong', data: reconnect })
    expect(await node.closed).toBe(1000)
    expect(statusOf(node, 'r1')).toBe(2)
    await nodeAt(1)
  })

  it('over 1 MiB end the connection, and the agent comes back', async () => {
    const { node } = await connect()
    node.send('x'.repeat(1024 * 1024 + 1))
    expect(await node.closed).toBe(1009)
    await nodeAt(1)
  })
})

describe('an agent whose connection ends', () => {
  it('comes back, after pauses that grow while it is refused', async () => {
    gateway.known.onNode = (node) => node.close(1008, 'Benchmarking is not completed')
    const backOff = { minMs: 20, maxMs: 10_000 }
    const { agent } = await connect({ timings: { ...FAST_TIMINGS, backOff }, random: () => 1 })
    await nodeAt(3)
    const pauses = agent.logLines.flatMap((line) => JSON.parse(line).pause_ms ?? [])
    expect(pauses.slice(0, 3)).toEqual([20, 40, 80])
    expect(agent.logLines.join('')).toContain('Benchmarking is not completed')
    // It looks again at what the gateway knows.
    expect(gateway.calls.length).toBeGreaterThan(3 * 3)
  })

  it.each([1000, 1001, 1011, 1012, 1013])('comes back after close code %d', async (code) => {
    const { node } = await connect()
    node.close(code)
    await nodeAt(1)
  })

  it('ends a connection over which nothing comes any more', async () => {
    const { agent, node } = await connect({ timings: { ...FAST_TIMINGS, pingMs: 50 } })
    await sleep(200)
    expect(agent.status().connections).toBe(1)
    node.pause()
    await nodeAt(1)
  })

  it('comes back to a gateway that was away', async () => {
    const { agent } = await connect()
    const { url } = gateway
    await gateway.stop()
    await expect.poll(() => agent.status().phase).not.toBe('connected')
    await sleep(200)
    gateway = await startScriptedNodeGateway(Number(new URL(url).port))
    await nodeAt(0)
    await expect.poll(() => agent.status()).toMatchObject({ phase: 'connected', connections: 2 })
  })
})

describe('an agent that is stopped', () => {
  it('says so, takes nothing new, finishes what runs, and closes', async () => {
    script = async (response) => {
      writeEvents(response, [textChunk('a')])
      await sleep(200)
      writeEvents(response, [textChunk('', 'stop'), '[DONE]'])
      response.end()
    }
    const { agent, node } = await connect()
    chat(node, 'r1')
    await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
    const stopped = agent.stop()
    await expect.poll(() => node.frames).toContainEqual({ protocol: 'drain', data: CONTROL })
    chat(node, 'r2')
    await stopped
    expect(statusOf(node, 'r1')).toBe(2)
    expect(lastOf(node, 'r2')).toMatchObject({ status: 3, error: { status_code: 500 } })
    expect(await node.closed).toBe(1000)
    expect(agent.status()).toMatchObject({ phase: 'stopped', running: 0 })
    await agent.done
    expect(gateway.nodes).toHaveLength(1)
  })

  it('breaks off what runs for too long, and says so', async () => {
    script = (response) => writeEvents(response, [textChunk('a')])
    const { agent, node } = await connect({ timings: { ...FAST_TIMINGS, drainMs: 100 } })
    chat(node, 'r1')
    await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
    await agent.stop()
    expect(lastOf(node, 'r1')).toMatchObject({ status: 3, error: { message: 'the node stopped' } })
    await expect.poll(() => backend.open()).toBe(0)
  })

  it('ends while it waits, while it dials, and a second time', async () => {
    gateway.known.onNode = (node) => node.close(1008, 'no')
    const { agent } = await connect({
      timings: { ...FAST_TIMINGS, backOff: { minMs: 60_000, maxMs: 60_000 } },
    })
    await expect.poll(() => agent.status().phase).toBe('waiting')
    await Promise.all([agent.stop(), agent.stop()])
    await agent.stop()
    await agent.done
  })

  it('writes no key, no prompt and no answer into its log', async () => {
    script = answerWith('planted-answer')
    const { agent, node } = await connect()
    chat(node, 'r1', { messages: [{ role: 'user', content: 'planted-prompt' }] })
    await expect.poll(() => statusOf(node, 'r1')).toBe(2)
    script = (response) => {
      response.writeHead(400).end('{"error":"planted-prompt"}')
    }
    chat(node, 'r2', { messages: [{ role: 'user', content: 'planted-prompt' }] })
    await expect.poll(() => statusOf(node, 'r2')).toBe(3)
    await agent.stop()
    expect(agent.logLines.length).toBeGreaterThan(2)
    expect(agent.logLines.join('')).not.toMatch(/planted/)
  })
})
