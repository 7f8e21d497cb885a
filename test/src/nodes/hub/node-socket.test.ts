import { request as httpRequest } from 'node:http'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import {
  eventually,
  INFERENCE_KEY,
  MODEL,
  type NodesStage,
  OTHER_KEY,
  openNodesStage,
  readAll,
  TEST_KEY,
} from '../../../support/nodes-stage.ts'
import { connectScriptedNode, type UpgradeRefused } from '../../../support/scripted-node.ts'

let stage: NodesStage
beforeEach(async () => {
  stage = await openNodesStage()
  stage.registry.register({ nodeId: 'known', state: 'STOPPED', benchmarks: { [MODEL]: 50 } })
})
afterEach(() => stage.close())

/** How a handshake is closed. */
async function closeOf(options: Partial<Parameters<typeof connectScriptedNode>[0]>) {
  const node = await connectScriptedNode({
    url: stage.url,
    key: TEST_KEY,
    nodeId: 'known',
    model: MODEL,
    ...options,
  })
  return node.closed
}

async function refusalOf(headers: Readonly<Record<string, string | null>>, key = TEST_KEY) {
  const refused = await connectScriptedNode({
    url: stage.url,
    key,
    nodeId: 'known',
    model: MODEL,
    headers,
  }).catch((error: unknown) => error)
  return refused as UpgradeRefused
}

it('a handshake without a key is answered with 401', async () => {
  const refused = await refusalOf({ Authorization: null })
  expect(refused.status).toBe(401)
  expect(refused.body).toMatchObject({
    response: 'NOK',
    error: { code: 'authorization_missing', status_code: 401 },
  })
})

it.each(['wrong', INFERENCE_KEY, `${TEST_KEY}x`])(
  'a handshake with the key %s is answered with 401',
  async (key) => {
    const refused = await refusalOf({}, key)
    expect(refused.status).toBe(401)
    expect(refused.body).toMatchObject({ error: { code: 'invalid_credentials' } })
  },
)

it('a handshake without a right is answered with 401 before anything else about it is looked at', async () => {
  const refused = await refusalOf({ Authorization: 'Bearer wrong', 'Node-Id': null, Model: null })
  expect(refused.status).toBe(401)
})

it.each([
  ['Node-Id header is required', { 'Node-Id': null }],
  ['Node-Id header is not a node id', { 'Node-Id': 'two words' }],
  ['Node-Id header is not a node id', { 'Node-Id': 'x'.repeat(129) }],
  ['No "Model" header provided', { Model: null }],
  ['No "Model" header provided', { Model: '  ' }],
  ['Model header is not a model id', { Model: 'x'.repeat(257) }],
  ['Model header is not a model id', { Model: 'a\tb' }],
  ['Model-Type header is neither LLM nor DIFFUSION', { 'Model-Type': 'VIDEO' }],
  ['Node-Models header is not a list of at most 16 model ids', { 'Node-Models': 'm,'.repeat(17) }],
  ['Benchmarking is not completed', { Model: 'never-benchmarked' }],
  ['Node is not registered', { 'Node-Id': 'nobody' }],
] as const)('a node is closed with 1008 and the reason %s', async (reason, headers) => {
  expect(await closeOf({ headers })).toEqual({ code: 1008, reason })
})

it('a node of another account is closed as if it did not exist', async () => {
  expect(await closeOf({ key: OTHER_KEY })).toEqual({
    code: 1008,
    reason: 'Node is not registered',
  })
})

it('a node that is archived is closed with 1008 and the reason', async () => {
  stage.registry.change('known', { isArchived: true })
  expect(await closeOf({})).toEqual({ code: 1008, reason: 'Node is archived' })
})

it.each(['STOPPED_DISABLED', 'RUNNING_DISABLED'] as const)(
  'a node that is %s is closed with the reason, and stays disabled',
  async (state) => {
    stage.registry.change('known', { state })
    expect(await closeOf({})).toEqual({ code: 1008, reason: 'Node is disabled' })
    expect(stage.registry.stateOf('known')).toBe(state)
  },
)

it('a node whose benchmark is below the minimum is closed with the reason', async () => {
  stage.registry.register({ nodeId: 'slow', benchmarks: { [MODEL]: 0.9 } })
  expect(await closeOf({ nodeId: 'slow' })).toEqual({
    code: 1008,
    reason: 'Benchmarking is not completed',
  })
})

it('a refused node holds nothing after it was closed', async () => {
  await closeOf({ headers: { 'Node-Id': null } })
  await eventually(() => stage.nodes.status().sockets === 0, 'no socket')
  expect(stage.nodes.status()).toMatchObject({ connected: 0, handshakes: 0, sockets: 0 })
})

it('a node that connects as DIFFUSION needs no benchmark and is given no chat', async () => {
  stage.registry.register({ nodeId: 'painter', state: 'STOPPED' })
  await stage.connect({ nodeId: 'painter', modelType: 'DIFFUSION' })
  expect(stage.nodes.status().connected).toBe(1)
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'unsupported_model' })
})

it('a node that connects serves those of its further models that have a benchmark', async () => {
  stage.registry.register({ nodeId: 'many', state: 'STOPPED', benchmarks: { [MODEL]: 9, b: 9 } })
  const node = await stage.connect({ nodeId: 'many', headers: { 'Node-Models': 'b, c, b' } })
  await readAll(await stage.dispatch({ model: 'b' }))
  expect(node.calls.map(({ model }) => model)).toEqual(['b'])
  await expect(stage.dispatch({ model: 'c' })).rejects.toMatchObject({
    code: 'unsupported_model',
  })
  expect(stage.nodes.dispatcher.models()).toEqual([
    { model: 'b', nodes: 1 },
    { model: MODEL, nodes: 1 },
  ])
})

it('a node that connects may serve models whose ids contain blanks', async () => {
  const [model, second] = ['Llama 3 8B.gguf', 'My Model 7B']
  const benchmarks = { [model]: 9, [second]: 9 }
  stage.registry.register({ nodeId: 'blanks', state: 'STOPPED', benchmarks })
  const headers = { 'Node-Models': ` ${second} ` }
  const node = await stage.connect({ nodeId: 'blanks', model, headers })
  for (const asked of [model, second]) await readAll(await stage.dispatch({ model: asked }))
  expect(node.calls.map((call) => call.model)).toEqual([model, second])
})

it('a node that connects is refused when as many are connected as may be', async () => {
  await stage.close()
  stage = await openNodesStage({ connectionsMax: 1 })
  await stage.connect()
  const second = await stage.connect()
  expect(await second.closed).toEqual({ code: 1013, reason: 'Too many nodes' })
})

it('a node id that is connected is refused a second time', async () => {
  await stage.connect({ nodeId: 'known' })
  expect(await closeOf({})).toEqual({
    code: 1008,
    reason: 'Node with same node id already connected',
  })
  expect(stage.nodes.status().connected).toBe(1)
})

it('a node id connects only once when it dials several times at once', async () => {
  await stage.close()
  const gate = Promise.withResolvers<{ accountId: string; scopes: readonly ['nodes'] }>()
  stage = await openNodesStage({}, { authenticate: () => gate.promise })
  const dialling = Array.from({ length: 5 }, () => stage.connect({ nodeId: 'known' }))
  await eventually(() => stage.nodes.status().handshakes === 5, 'all are at the door')
  gate.resolve({ accountId: TEST_ACCOUNT, scopes: ['nodes'] })
  const nodes = await Promise.all(dialling)
  await eventually(() => stage.nodes.status().sockets === 1, 'one is left')
  const open = nodes.filter(({ socket }) => socket.readyState === WebSocket.OPEN)
  expect(open).toHaveLength(1)
  expect(stage.nodes.status().connected).toBe(1)
})

it('a node id is given to the connection that dials again when the old one no longer answers', async () => {
  const old = await stage.connect({ nodeId: 'known' })
  old.socket.pause()
  const fresh = await stage.connect({ nodeId: 'known' })
  await eventually(() => stage.nodes.status().sockets === 1, 'the old socket is closed')
  expect(stage.nodes.status().connected).toBe(1)
  await readAll(await stage.dispatch())
  expect(fresh.calls).toHaveLength(1)
  expect(stage.registry.stateOf('known')).toBe('RUNNING')
})

it('the door for nodes answers 400 in JSON when the key is right and the request is not an upgrade', async () => {
  const status = await new Promise((resolve) => {
    const headers = {
      authorization: `Bearer ${TEST_KEY}`,
      'node-id': 'known',
      model: MODEL,
      connection: 'upgrade',
      upgrade: 'websocket',
    }
    httpRequest(`${stage.url}/v1/node/ws`, { headers }, (response) => {
      let text = ''
      response.on('data', (part) => {
        text += part
      })
      response.on('end', () =>
        resolve({ status: response.statusCode, code: JSON.parse(text).error.code }),
      )
    }).end()
  })
  expect(status).toEqual({ status: 400, code: 'malformed_request' })
})

it('the door for nodes answers 503 when keys cannot be checked', async () => {
  await stage.close()
  stage = await openNodesStage({}, { authenticate: () => Promise.reject(new Error('away')) })
  expect((await refusalOf({})).status).toBe(503)
  expect(stage.nodes.status()).toMatchObject({ handshakes: 0, sockets: 0 })
})

it('the door for nodes answers 503 beyond so many handshakes at once', async () => {
  await stage.close()
  const { promise, resolve } = Promise.withResolvers<null>()
  stage = await openNodesStage({ handshakesMax: 2 }, { authenticate: () => promise })
  const waiting = [refusalOf({}), refusalOf({})]
  await eventually(() => stage.nodes.status().handshakes === 2, 'two wait')
  expect((await refusalOf({})).status).toBe(503)
  resolve(null)
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([401, 401])
})

it('the door for nodes destroys a handshake that takes too long', async () => {
  await stage.close()
  stage = await openNodesStage(
    { handshakeTimeoutMs: 50 },
    { authenticate: () => new Promise(() => {}) },
  )
  expect(await refusalOf({})).toMatchObject({ code: 'ECONNRESET' })
})

it('the door for nodes refuses every node once it is stopped', async () => {
  await stage.nodes.stop()
  expect((await refusalOf({})).status).toBe(503)
})
