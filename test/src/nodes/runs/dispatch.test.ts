import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { createNodeIndex } from '#src/nodes/runs/choose-node.ts'
import type { NodeConnection } from '#src/nodes/runs/connection.ts'
import { dispatchCall } from '#src/nodes/runs/dispatch.ts'
import { createWaitQueue } from '#src/nodes/runs/wait-queue.ts'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../../support/at-once.ts'
import { createFreeNode } from '../../../support/free-node.ts'
import {
  eventually,
  MODEL,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  QUICK_LIMITS,
  readAll,
  textOf,
} from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerError,
  answerSilence,
  answerWith,
  finishChunk,
  inTurn,
  roleChunk,
  textChunk,
  usageChunk,
} from '../../../support/scripted-node.ts'

let stage: NodesStage
beforeEach(async () => {
  stage = await openNodesStage()
})
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
})

/** Opens the stage again, with other limits. */
const reopen = async (...changes: Parameters<typeof openNodesStage>) => {
  await stage.close()
  stage = await openNodesStage(...changes)
}

const breakOff: AnswerScript = ({ id }, node) => node.sendRun(id, { status: 2 })
const closing: AnswerScript = (_, node) => node.socket.terminate()

it.each([
  ['that is silent', answerSilence(0)],
  ['whose backend fails', answerError(500)],
  ['whose backend has not the model', answerError(404)],
  ['whose backend is busy', answerError(429)],
  ['that is lost', closing],
  ['that ends without an answer', ({ id }, node) => node.sendRun(id, { status: 2 })],
  [
    'that sends what is no chunk',
    ({ id }, node) => node.sendRun(id, { chunk: { choices: 1 }, status: 1 }),
  ],
  [
    'that sends a role and then nothing',
    ({ id }, node) => node.sendRun(id, { chunk: roleChunk(), status: 1 }),
  ],
] as const satisfies readonly (readonly [string, AnswerScript])[])(
  'a node %s is replaced before the first token',
  async (_, script) => {
    let first = true
    const answer: AnswerScript = (call, node) => {
      if (!first) return answerWith('good')(call, node)
      first = false
      return script(call, node)
    }
    const nodes = [await stage.connect({ answer }), await stage.connect({ answer })]
    expect(textOf(await readAll(await stage.dispatch()))).toBe('good')
    expect(nodes.map(({ calls }) => calls.length)).toEqual([1, 1])
  },
)

it('a node is replaced twice before the first token, and no more', async () => {
  for (let count = 0; count < 4; count++) await stage.connect({ answer: answerError(500) })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed', status: 500 })
  await eventually(() => stage.nodes.status().slotsInUse === 0, 'slots are free')
})

it('a failed node is never replaced by itself', async () => {
  const node = await stage.connect({ answer: answerError(500, 'out of memory\n\u0007') })
  const error = await stage.dispatch().catch((caught: unknown) => caught)
  expect(error).toMatchObject({ code: 'node_failed', nodeMessage: 'out of memory  ' })
  expect(node.calls).toHaveLength(1)
})

it('a node that blames the request is believed when another one blames it too', async () => {
  for (let count = 0; count < 3; count++)
    await stage.connect({ answer: answerError(422, 'no such parameter') })
  await expect(stage.dispatch()).rejects.toMatchObject({
    code: 'node_refused',
    status: 422,
    nodeMessage: 'no such parameter',
  })
  const calls = stage.nodes.status()
  expect(calls.slotsInUse).toBe(0)
})

it.each([400, 422, 500, 409])(
  'a node that blames the request with %i is not believed, nor blamed, when another node answers',
  async (status) => {
    await reopen({ failuresMax: 1, asideMs: 60_000 })
    // The first of equals is asked first.
    const refusing = await stage.connect({ answer: answerError(status) })
    await stage.connect({ answer: answerWith('good') })
    expect(textOf(await readAll(await stage.dispatch()))).toBe('good')
    expect(refusing.calls).toHaveLength(1)
    expect(stage.nodes.status().serving).toBe(2)
  },
)

const busy =
  (retryAfter: unknown, status = 429): AnswerScript =>
  ({ id }, node) =>
    node.sendRun(id, {
      error: { status_code: status, message: 'busy', retry_after: retryAfter },
      status: 3,
    })

it('a node whose backend is busy is reported as busy, with its wait, and has not failed', async () => {
  await reopen({ failuresMax: 1, refusalsMax: 1 })
  const node = await stage.connect({ answer: busy(17) })
  const reported = { code: 'node_busy', status: 429, retryAfterSeconds: 17 }
  for (let call = 0; call < 3; call++)
    await expect(stage.dispatch()).rejects.toMatchObject(reported)
  expect(stage.nodes.status()).toMatchObject({ serving: 1, probes: 0 })
  expect(node.calls).toHaveLength(3)
})

it('a backend that fails with a wait has failed, and is not busy', async () => {
  await stage.connect({ answer: busy(17, 500) })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
})

it.each([-1, 1.5, '17', null, undefined])(
  'a node whose backend is busy is told without a wait when it told %j',
  async (retryAfter) => {
    await stage.connect({ answer: busy(retryAfter) })
    await expect(stage.dispatch()).rejects.toMatchObject({
      code: 'node_busy',
      retryAfterSeconds: null,
    })
  },
)

it('a node whose backend is busy is left alone for its wait while another node has room', async () => {
  const full = []
  for (let count = 0; count < 3; count++) full.push(await stage.connect({ answer: busy(17) }))
  await stage.connect({ answer: answerWith('good') })
  await stage.dispatch().then(readAll, () => undefined)
  const before = full.map(({ calls }) => calls.length)
  for (let call = 0; call < 3; call++)
    expect(textOf(await readAll(await stage.dispatch()))).toBe('good')
  expect(full.map(({ calls }) => calls.length)).toEqual(before)
})

it("a busy node's word counts more than the failure of a node after it", async () => {
  await stage.connect({ answer: busy(17) })
  await stage.connect({ answer: answerError(500) })
  await expect(stage.dispatch()).rejects.toMatchObject({
    code: 'node_busy',
    retryAfterSeconds: 17,
  })
})

const CURRENT = { max_completion_tokens: 5, reasoning_effort: 'low', metadata: { a: 'b' } }
const FOREIGN = {
  top_k: 4,
  reasoning: {},
  chat_id: 'c',
  min_p: null,
  extra_body: { model: 'other' },
  extra_headers: { authorization: 'x' },
  extra_query: { a: 'b' },
  timeout: 0,
}
const messages = [{ role: 'user', content: 'hi', cache_control: {} }]
const request = JSON.parse(
  JSON.stringify({ model: MODEL, messages, temperature: 1, ...CURRENT, ...FOREIGN }),
)

it('a node is sent members of the interface and of OpenAI’s API alone, unless it says that it takes more', async () => {
  const node = await stage.connect()
  await readAll(await stage.dispatch({ request }))
  expect(node.calls.map(({ chat_request: sent }) => sent)).toEqual([
    { model: MODEL, messages, temperature: 1, ...CURRENT },
  ])
})

it('a node is sent every member when it says that it takes more', async () => {
  const node = await stage.connect({ headers: { 'Node-Features': 'extra-members' } })
  await readAll(await stage.dispatch({ request }))
  expect(node.calls.map(({ chat_request: sent }) => sent)).toEqual([request])
})

describe('a request with pictures', () => {
  const pictured = (bytes: number): JsonObject => {
    const url = `data:image/png;base64,${'A'.repeat(bytes)}`
    const content: JsonObject[] = [
      { type: 'text', text: 'what is this?' },
      { type: 'image_url', image_url: { url } },
    ]
    return { model: MODEL, messages: [{ role: 'user', content }] }
  }
  const LARGE = { headers: { 'Node-Features': 'large-frames' } }
  /** A busy machine may take seconds for a large frame. */
  const PATIENT = { firstTokenMs: 10_000, tokenMs: 10_000, runMs: 30_000 }

  beforeEach(async () => {
    await reopen(PATIENT)
  })

  it('a request with large pictures goes to a node that said it takes it, and to no other', async () => {
    const small = await stage.connect()
    const large = await stage.connect(LARGE)
    for (let call = 0; call < 4; call++)
      await readAll(await stage.dispatch({ request: pictured(3_000_000) }))
    expect([small.calls.length, large.calls.length]).toEqual([0, 4])
    await readAll(await stage.dispatch({ request: pictured(500_000) }))
    expect(small.calls.length + large.calls.length).toBe(5)
  })

  it('a request with pictures is refused with the limit when no connected node takes its size', async () => {
    await stage.connect()
    await expect(stage.dispatch({ request: pictured(3_000_000) })).rejects.toMatchObject({
      code: 'request_too_large',
      message: 'Nodes take requests of at most 1048576 bytes',
    })
    await stage.connect(LARGE)
    await expect(stage.dispatch({ request: pictured(17_000_000) })).rejects.toMatchObject({
      code: 'request_too_large',
      message: 'Nodes take requests of at most 16777216 bytes',
    })
  })

  it('a request with addresses of pictures goes to nodes whose owners allow it, and waits for them', async () => {
    await reopen({ ...PATIENT, slots: 1, waitMs: 20_000 })
    const content = [{ type: 'image_url', image_url: { url: 'https://example.org/a.png' } }]
    const request = { model: MODEL, messages: [{ role: 'user', content }] }
    const closed = await stage.connect()
    await expect(stage.dispatch({ request })).rejects.toMatchObject({ code: 'remote_media' })
    const open = await stage.connect({
      headers: { 'Node-Features': 'remote-media' },
      answer: inTurn(answerSilence(1), answerWith('seen')),
    })
    const first = await stage.dispatch({ request })
    const second = stage.dispatch({ request })
    await eventually(() => stage.nodes.status().queued === 1, 'one waits')
    open.sendRun(open.calls[0]?.id ?? '', { chunk: finishChunk(), status: 1 })
    open.sendRun(open.calls[0]?.id ?? '', { status: 2 })
    await readAll(first)
    expect(textOf(await readAll(await second))).toBe('seen')
    expect(closed.calls).toEqual([])
  })

  it('a node cannot claim the bytes of a picture as tokens', async () => {
    const claim: AnswerScript = ({ id }, node) => {
      node.sendRun(id, { chunk: textChunk('a cat'), status: 1 })
      node.sendRun(id, { chunk: finishChunk(), status: 1 })
      node.sendRun(id, { chunk: usageChunk(900_000, 2), status: 1 })
      node.sendRun(id, { status: 2 })
    }
    await stage.connect({ answer: claim })
    const chunks = await readAll(await stage.dispatch({ request: pictured(900_000) }))
    const { usage } = chunks.at(-1) as { usage?: { prompt_tokens: number } }
    expect(usage?.prompt_tokens).toBeLessThan(20_000)
  })
})

it.each([
  ['node_lost', closing],
  ['node_failed', answerError(500)],
  ['token_timeout', () => {}],
  ['node_failed', ({ id }, node) => node.sendRun(id, { chunk: { choices: [null] }, status: 1 })],
] as const satisfies readonly (readonly [string, AnswerScript])[])(
  'a caller is told %s after the first token, and the node is not replaced',
  async (code, then) => {
    const isRead = Promise.withResolvers<void>()
    const answer: AnswerScript = async (call, node) => {
      node.sendRun(call.id, { chunk: textChunk('begun'), status: 1 })
      await isRead.promise
      return then(call, node)
    }
    const nodes = [await stage.connect({ answer }), await stage.connect({ answer })]
    const { batches } = await stage.dispatch()
    const got: unknown[] = []
    await expect(
      (async () => {
        for await (const { chunks } of batches) {
          got.push(...chunks)
          isRead.resolve()
        }
      })(),
    ).rejects.toMatchObject({ code })
    expect(got).toEqual([textChunk('begun')])
    expect(nodes.flatMap(({ calls }) => calls)).toHaveLength(1)
  },
)

it('a caller waits for a slot no longer than allowed', async () => {
  await reopen({ slots: 1, waitMs: 100, firstTokenMs: 2_000 })
  await stage.connect({ answer: answerSilence() })
  const abort = new AbortController()
  const first = stage.dispatch({ signal: abort.signal }).catch((error: unknown) => error)
  const startedAt = performance.now()
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'no_nodes' })
  expect(performance.now() - startedAt).toBeGreaterThan(80)
  abort.abort(new Error('left'))
  expect(await first).toMatchObject({ message: 'left' })
})

it('a caller gets an error at once when the only node that could serve the call is gone', async () => {
  await reopen({ waitMs: FAR_OFF_MS })
  const node = await stage.connect()
  await node.close()
  await eventually(() => stage.nodes.status().connected === 0, 'gone')
  const startedAt = performance.now()
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'no_nodes' })
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
})

it('a caller gets an error for a model that no node has', async () => {
  await stage.connect()
  await expect(stage.dispatch({ model: 'other' })).rejects.toMatchObject({
    code: 'unsupported_model',
  })
})

it('a caller may try a model again that was offered before this process began', async () => {
  await reopen({}, { offeredModels: ['was-here'] })
  await expect(stage.dispatch({ model: 'was-here' })).rejects.toMatchObject({ code: 'no_nodes' })
})

it('a caller who leaves while waiting is no longer in the queue', async () => {
  await reopen({ slots: 1, waitMs: 5_000, drainMs: 50 })
  await stage.connect({ answer: answerSilence() })
  const aborts = [new AbortController(), new AbortController()]
  const calls = aborts.map(({ signal }) =>
    stage.dispatch({ signal }).catch((error: unknown) => error),
  )
  await eventually(() => stage.nodes.status().queued === 1, 'one waits')
  for (const abort of aborts.toReversed()) abort.abort(new Error('left'))
  expect(await Promise.all(calls)).toMatchObject([{ message: 'left' }, { message: 'left' }])
  expect(stage.nodes.status().queued).toBe(0)
})

it('a caller who leaves in the moment a slot is found gives it back', async () => {
  // Nothing is sent to it: only its slot is looked at.
  const free = Object.assign(createFreeNode([MODEL], 1), { hasRoomFor: () => true })
  const node = free as unknown as NodeConnection
  const index = createNodeIndex<NodeConnection>({
    random: Math.random,
    offeredModels: [],
    returnMs: 0,
    now: () => 0,
  })
  const taken = node.slots.acquire()
  index.add(node)
  const queue = createWaitQueue<NodeConnection>({ waitersMax: 1 })
  const abort = new AbortController()
  const call = { model: MODEL, request: {}, accountId: null, signal: abort.signal }
  const dispatched = dispatchCall(call, { index, queue, limits: QUICK_LIMITS, now: () => 0 })
  taken?.release()
  queue.offer(node)
  abort.abort(new Error('left'))
  await expect(dispatched).rejects.toThrow('left')
  expect(node.slots.inUse()).toBe(0)
})

it.each(['by the signal', 'by leaving the iteration'])(
  'the slot of a caller who left %s is kept until the node is done',
  async (how) => {
    const node = await stage.connect({ answer: answerSilence(1) })
    const abort = new AbortController()
    const { batches } = await stage.dispatch({ signal: abort.signal })
    if (how === 'by the signal') abort.abort(new Error('left'))
    else for await (const _ of batches) break
    expect(stage.nodes.status().slotsInUse).toBe(1)
    node.sendRun(node.calls[0]?.id ?? '', { status: 2 })
    await eventually(() => stage.nodes.status().slotsInUse === 0, 'drained')
    await eventually(() => stage.registry.served.length === 1, 'what the node served counts for it')
  },
)

it('the slot of a caller who left is freed by the drain timeout when the node says nothing', async () => {
  await stage.connect({ answer: answerSilence(1) })
  const { batches } = await stage.dispatch()
  for await (const _ of batches) break
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 1 })
  await eventually(() => stage.nodes.status().slotsInUse === 0, 'timed out')
  expect(stage.nodes.status().connected).toBe(1)
})

it('the slot of a caller who left is freed soon by a node that takes cancel frames', async () => {
  const node = await stage.connect({
    headers: { 'Node-Features': 'cancel, unknown' },
    answer: answerSilence(1),
  })
  const { batches } = await stage.dispatch()
  for await (const _ of batches) break
  await eventually(() => node.controls.length === 1, 'told')
  const [{ id } = { id: '' }] = node.calls
  expect(node.controls).toEqual([
    {
      protocol: 'cancel',
      data: { protocol_version: '1.0', message_type: 1, node_id: 'node-1', request_id: id },
    },
  ])
  node.sendRun(id, { status: 2 })
  await eventually(() => stage.nodes.status().slotsInUse === 0, 'freed')
})

it('a node that fails again and again is set aside, probed, and given work again', async () => {
  await reopen({ asideMs: 500, failuresMax: 3, waitMs: 50 })
  const node = await stage.connect({
    answer: inTurn(breakOff, breakOff, breakOff, answerWith('one two three')),
  })
  for (let count = 0; count < 3; count++)
    await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
  expect(stage.nodes.status().serving).toBe(0)
  await expect(stage.dispatch({})).rejects.toMatchObject({ code: 'no_nodes' })
  await eventually(() => stage.nodes.status().serving === 1, 'back')
  expect(node.calls).toHaveLength(4)
  expect(node.calls.at(-1)?.chat_request).toMatchObject({ stream: true, max_tokens: 64 })
})

// https://github.com/sgl-project/sglang/pull/8417
it('a node whose answers the gateway refuses is not set aside for them, but probed', async () => {
  await reopen({ refusalsMax: 4, failuresMax: 1 })
  const odd: AnswerScript = ({ id }, node) =>
    node.sendRun(id, { chunk: { choices: [null] }, status: 1 })
  const node = await stage.connect({ answer: inTurn(odd, odd, odd, answerWith('one two')) })
  for (let count = 0; count < 3; count++)
    await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
  expect(stage.nodes.status().serving).toBe(1)
  await expect(stage.dispatch()).resolves.toBeDefined()
  expect(node.calls).toHaveLength(4)
})

it('a node that is silent is set aside also when its callers leave before it times out', async () => {
  await reopen({ drainMs: 50, failuresMax: 2, firstTokenMs: 5_000 })
  await stage.connect({ answer: answerSilence() })
  for (let count = 0; count < 2; count++)
    await expect(stage.dispatch({ signal: AbortSignal.timeout(20) })).rejects.toThrow()
  await eventually(() => stage.nodes.status().serving === 0, 'set aside')
})

it('a node that hangs up on its calls is set aside though it dials again each time', async () => {
  await reopen({ asideMs: 60_000, failuresMax: 3 })
  for (let count = 0; count < 3; count++) {
    await stage.connect({ nodeId: 'flapping', answer: closing })
    await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_lost' })
  }
  await stage.connect({ nodeId: 'flapping', answer: closing })
  expect(stage.nodes.status()).toMatchObject({ connected: 1, serving: 0 })
})

it('a node that hangs up on its calls does not keep a call from waiting for the other node', async () => {
  await reopen({ slots: 1, waitMs: 2_000 })
  const free = Promise.withResolvers<void>()
  const busy = await stage.connect({
    nodeId: 'busy',
    answer: inTurn(async (call, node) => {
      node.sendRun(call.id, { chunk: textChunk('slow'), status: 1 })
      await free.promise
      await answerWith(' end')(call, node)
    }, answerWith('worth waiting')),
  })
  const first = await stage.dispatch()
  await stage.connect({ nodeId: 'leaving', answer: closing })
  const second = stage.dispatch()
  await eventually(() => stage.nodes.status().queued === 1, 'waits for the busy one')
  free.resolve()
  await readAll(first)
  expect(textOf(await readAll(await second))).toBe('worth waiting')
  expect(busy.calls).toHaveLength(2)
})

it('a node with a large vram takes twenty runs at once, and the others wait', async () => {
  await reopen({ waitMs: FAR_OFF_MS, firstTokenMs: FAR_OFF_MS, drainMs: 50 })
  await stage.connect({ answer: answerSilence(), registered: { hardware: { vram: 80_001 } } })
  const abort = new AbortController()
  const calls = Array.from({ length: 21 }, () =>
    stage.dispatch({ signal: abort.signal }).catch(() => null),
  )
  await eventually(() => stage.nodes.status().queued === 1, 'one waits')
  expect(stage.nodes.status().slotsInUse).toBe(20)
  abort.abort(new Error('left'))
  await Promise.all(calls)
})

it('a stop lets runs finish for the grace it is given', async () => {
  const node = await stage.connect({ answer: () => {} })
  const answered = stage.dispatch()
  await eventually(() => node.calls.length === 1, 'asked')
  const stopped = stage.nodes.stop(2_000)
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'stopping' })
  for (const call of node.calls) await answerWith('late')(call, node)
  expect(textOf(await readAll(await answered))).toBe('late')
  await stopped
  expect(await node.closed).toEqual({ code: 1012, reason: 'Gateway is restarting' })
})

it('a stop ends the calls that wait and those that run', async () => {
  await reopen({ slots: 1, waitMs: 5_000, firstTokenMs: 5_000 })
  await stage.connect({ answer: answerSilence() })
  const calls = [stage.dispatch(), stage.dispatch()].map((call) =>
    call.catch((error: unknown) => error),
  )
  await eventually(() => stage.nodes.status().queued === 1, 'one waits')
  await stage.nodes.stop()
  expect(await Promise.all(calls)).toMatchObject([{ code: 'stopping' }, { code: 'stopping' }])
})
