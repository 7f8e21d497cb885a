import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openScope } from '#src/observability/call-scope.ts'
import { drawAsAsked, drawWith, framesFor } from '../../../support/drawing-node.ts'
import { IMAGE_MODEL } from '../../../support/drawing-stage.ts'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import { NATS, type NatsServer, startNatsServer } from '../../../support/nats-server.ts'
import { MODEL, readAll, textOf } from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerError,
  answerSilence,
  answerWith,
  finishChunk,
  type ScriptedNode,
  textChunk,
  usageChunk,
} from '../../../support/scripted-node.ts'
import { closeSharing, openSharing, type SharingGateway } from '../../../support/sharing-stage.ts'
import { until } from '../../../support/until.ts'

let nats: NatsServer
let gateways: readonly SharingGateway[]
let near: SharingGateway['stage']
let other: SharingGateway['stage']
let far: SharingGateway['stage']

beforeAll(async () => {
  if (NATS.isMet) nats = await startNatsServer()
})
afterAll(() => nats?.stop())

const LIMITS = { slots: 2, tokenMs: 20_000, firstTokenMs: 2_000, imageMs: 20_000, waitMs: 20_000 }
beforeEach(async () => {
  if (!NATS.isMet) return
  gateways = await openSharing(nats.url, 3, LIMITS)
  const [first, second, third] = gateways.map(({ stage }) => stage)
  if (first === undefined || second === undefined || third === undefined) throw new TypeError()
  near = first
  other = second
  far = third
})
afterEach(async () => {
  if (NATS.isMet) await closeSharing(gateways)
})

const known = (nodes = 1, stage = near) =>
  until('the nodes are known', () => stage.nodes.dispatcher.models()[0]?.nodes === nodes)

/** Begins an answer, and ends it when `finish` is called. */
function answerOnCue(): { script: AnswerScript; finish(node: ScriptedNode): void } {
  return {
    script: ({ id }, node) => node.sendRun(id, { chunk: textChunk('begun '), status: 1 }),
    finish: (node) => {
      for (const { id } of node.calls.splice(0)) {
        node.sendRun(id, { chunk: textChunk('done'), status: 1 })
        node.sendRun(id, { chunk: finishChunk(), status: 1 })
        node.sendRun(id, { chunk: usageChunk(9, 2), status: 1 })
        node.sendRun(id, { status: 2 })
      }
    },
  }
}

const idle = (stage = far) => until('no slot is taken', () => stage.nodes.status().slotsInUse === 0)

const errorOf = (call: Promise<unknown>) =>
  call.then(
    () => null,
    (error: unknown) => error,
  )

describe.runIf(NATS.isMet)(NATS.title('nodes of another gateway'), () => {
  it('nodes of another gateway serve calls here, are counted once, and stored where they are', async () => {
    await far.connect({ answer: answerWith('from far') })
    await known()
    await known(1, other)
    expect(near.nodes.dispatcher.models()).toEqual([{ model: MODEL, nodes: 1 }])
    expect(textOf(await readAll(await near.dispatch()))).toBe('from far')
    await until('it is stored', () => far.registry.served.length === 1)
    expect(far.registry.served[0]).toMatchObject({ accountId: TEST_ACCOUNT, model: MODEL })
    expect(near.registry.served).toEqual([])
  })

  it('refusals of nodes at another gateway arrive like those of nodes here', async () => {
    await far.connect({ answer: answerError(400, 'no such tool') })
    await known()
    await expect(near.dispatch()).rejects.toMatchObject({
      code: 'node_refused',
      status: 400,
      nodeMessage: 'no such tool',
    })
  })

  it('nodes of another gateway are replaced before the first token when they fail, or are silent', async () => {
    const failing = await far.connect({ nodeId: 'fails', answer: answerError(500) })
    await known()
    await other.connect({ nodeId: 'answers', answer: answerWith('from the other') })
    await known(2)
    // The better of the two is asked first; whichever it is, the call is answered.
    for (let count = 0; count < 4; count++)
      expect(textOf(await readAll(await near.dispatch()))).toBe('from the other')
    await failing.close()
    await known(1)
    await far.connect({ nodeId: 'silent', answer: answerSilence(0) })
    await known(2)
    expect(textOf(await readAll(await near.dispatch()))).toBe('from the other')
  })

  it('nodes of another gateway are not replaced after the first token, and no cut answer looks whole', async () => {
    const { script } = answerOnCue()
    const nodes = [
      await far.connect({ nodeId: 'one', answer: script }),
      await other.connect({ nodeId: 'two', answer: script }),
    ]
    await known(2)
    const reading = errorOf(readAll(await near.dispatch()))
    for (const { calls, socket } of nodes) if (calls.length > 0) socket.terminate()
    expect(await reading).toMatchObject({ code: 'node_lost' })
    expect(nodes.flatMap(({ calls }) => calls)).toHaveLength(1)
  })

  it('nodes of another gateway wake who waits here, in order, and never run more than their slots', async () => {
    let running = 0
    let most = 0
    const node = await far.connect({
      answer: async ({ id }, { sendRun, socket }) => {
        most = Math.max(most, ++running)
        sendRun(id, { chunk: textChunk('one '), status: 1 })
        await new Promise((resolve) => setTimeout(resolve, 5))
        running--
        if (socket.readyState !== socket.OPEN) return
        sendRun(id, { chunk: finishChunk(), status: 1 })
        sendRun(id, { chunk: usageChunk(9, 1), status: 1 })
        sendRun(id, { status: 2 })
      },
    })
    await Promise.all([known(), known(1, other)])
    const calls = [near, other, far].flatMap((stage) =>
      Array.from({ length: 20 }, async () => textOf(await readAll(await stage.dispatch()))),
    )
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['one ']))
    expect(node.calls).toHaveLength(60)
    expect(most).toBeLessThanOrEqual(LIMITS.slots)
  })

  it('nodes of another gateway are left alone by a caller who leaves, at any point of a call', async () => {
    const { script, finish } = answerOnCue()
    let isSilent = true
    const node = await far.connect({
      headers: { 'Node-Features': 'cancel' },
      answer: (call, self) => (isSilent ? undefined : script(call, self)),
    })
    await known()
    const before = new AbortController()
    const first = errorOf(near.dispatch({ signal: before.signal }))
    await until('it is asked', () => node.calls.length === 1)
    before.abort(new Error('left'))
    expect(await first).toMatchObject({ message: 'left' })
    await idle()
    isSilent = false
    const leaving = new AbortController()
    const begun = [
      await near.dispatch({ signal: leaving.signal }),
      await near.dispatch({ signal: leaving.signal }),
    ]
    const queued = new AbortController()
    const waiting = errorOf(near.dispatch({ signal: queued.signal }))
    await until('it waits', () => near.nodes.status().queued === 1)
    queued.abort(new Error('left the queue'))
    expect(await waiting).toMatchObject({ message: 'left the queue' })
    const reading = begun.map((answer) => errorOf(readAll(answer)))
    leaving.abort(new Error('left the stream'))
    expect(await Promise.all(reading)).toMatchObject([{ message: 'left the stream' }, {}])
    await idle()
    finish(node)
  })

  it('nodes of another gateway are sent addresses of images where an owner allows it, and nowhere else', async () => {
    const content = [{ type: 'image_url', image_url: { url: 'https://example.org/a.png' } }]
    const request = { model: MODEL, messages: [{ role: 'user', content }] }
    const closed = await far.connect({ nodeId: 'closed' })
    await known()
    await expect(near.dispatch({ request })).rejects.toMatchObject({ code: 'remote_media' })
    const open = await far.connect({
      nodeId: 'open',
      headers: { 'Node-Features': 'remote-media' },
      answer: answerWith('seen'),
    })
    await until('it is known', async () => {
      const answer = await near.dispatch({ request }).catch(() => null)
      return answer !== null && textOf(await readAll(answer)) === 'seen'
    })
    expect(open.calls.length).toBeGreaterThan(0)
    expect(closed.calls).toEqual([])
  })

  it('nodes of another gateway find the trace of the call that they serve', async () => {
    const node = await far.connect({
      headers: { 'Node-Features': 'trace' },
      answer: answerWith('traced'),
    })
    await known()
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    const { result } = openScope(traceparent, () => near.dispatch())
    await readAll(await result)
    expect(node.calls[0]).toMatchObject({ traceparent })
  })

  it('nodes of another gateway draw, and are judged where the caller is', async () => {
    let isMad = false
    const node = await far.connectDrawer(
      (frame, self) => (isMad ? drawWith(['aGk=']) : drawAsAsked)(frame, self),
      { nodeId: 'draws' },
    )
    await until('it is known', () => near.nodes.images.serves(IMAGE_MODEL))
    expect(await near.draw({ n: 2 })).toHaveLength(2)
    expect(await near.draw({ image: 'aGk=' })).toHaveLength(1)
    expect(framesFor(node)[1]?.image).toBe('aGk=')
    await until('both are stored', () => far.registry.served.length === 2)
    isMad = true
    // Its failures count at its own gateway, and are errors at the caller's.
    await until('it is set aside', async () => {
      if (!far.nodes.images.serves(IMAGE_MODEL)) return !near.nodes.images.serves(IMAGE_MODEL)
      const error = await errorOf(near.draw())
      expect(['node_failed', 'no_nodes']).toContain((error as { code?: string } | null)?.code)
      return !near.nodes.images.serves(IMAGE_MODEL)
    })
    await idle()
    expect(far.registry.served).toHaveLength(2)
  })

  it("nodes of another gateway are free again when the caller's gateway never judges what they drew", async () => {
    await far.connectDrawer(drawAsAsked)
    await until('it is known', () => near.nodes.images.serves(IMAGE_MODEL))
    const asked = near.nodes.images.dispatch({
      model: IMAGE_MODEL,
      request: { prompt: 'a fox', image: null, n: 1, size: '256x256' },
      accountId: TEST_ACCOUNT,
      signal: new AbortController().signal,
      read: async () => {
        throw new Error('no room to look at it')
      },
    })
    await expect(asked).rejects.toThrow('no room')
    await idle()
    expect(far.nodes.status().imageBytes).toBe(0)
  })

  it('nodes of another gateway have one connection in all, wherever they dial', async () => {
    const dial = (stage: typeof near) => stage.connect({ nodeId: 'twice' })
    const nodes = await Promise.all([dial(near), dial(far), dial(other)])
    const connected = () =>
      [near, other, far].reduce((sum, { nodes: hub }) => sum + hub.status().connected, 0)
    await until('one is left', () => connected() === 1)
    await until('the others are closed', () => nodes.filter(isOpen).length === 1)
    // Half-open: it does not answer, and the node is dialled again elsewhere.
    const [holder] = nodes.filter(isOpen)
    holder?.socket.pause()
    const stage = far.nodes.status().connected === 1 ? near : far
    const again = await dial(stage)
    await until('it is in', () => stage.nodes.status().connected === 1)
    await until('one is left', () => connected() === 1)
    expect(isOpen(again)).toBe(true)
  })

  it('nodes of another gateway are disconnected from any gateway', async () => {
    const node = await far.connect({ nodeId: 'archived' })
    await known()
    near.nodes.disconnect('archived', 'Node is archived')
    expect(await node.closed).toEqual({ code: 1008, reason: 'Node is archived' })
    await until('it is gone', () => near.nodes.dispatcher.models().length === 0)
  })

  it('nodes of another gateway finish their calls when it drains, and get no others', async () => {
    const { script, finish } = answerOnCue()
    const node = await far.connect({ answer: script })
    await known()
    const reading = readAll(await near.dispatch())
    let isDrained = false
    const draining = far.nodes.drain(20_000).then(() => {
      isDrained = true
    })
    await until('it offers nothing', () => near.nodes.dispatcher.models().length === 0)
    expect(isDrained).toBe(false)
    finish(node)
    expect(textOf(await reading)).toBe('begun done')
    await draining
  })

  it('a call waits for the nodes of a gateway that drains until they dial in elsewhere', async () => {
    await far.connect({ nodeId: 'moves', answer: answerWith('from far') })
    await known()
    await far.nodes.drain(20_000)
    await until('it offers nothing', () => near.nodes.dispatcher.models().length === 0)
    const waiting = near.dispatch()
    await until('the call waits', () => near.nodes.status().queued === 1)
    await far.nodes.stop()
    await near.connect({ nodeId: 'moves', answer: answerWith('from near') })
    expect(textOf(await readAll(await waiting))).toBe('from near')
  })
})

const isOpen = ({ socket }: ScriptedNode) => socket.readyState === socket.OPEN
