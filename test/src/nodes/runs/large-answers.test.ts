import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, expect, it } from 'vitest'
import { type DispatchError, nodeCallErrorOf } from '#src/nodes/runs/dispatch-error.ts'
import {
  eventually,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  readAll,
  textOf,
} from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerWith,
  type ChatFrame,
  type ScriptedNode,
  textChunk,
} from '../../../support/scripted-node.ts'

const ANSWER_BYTES_MAX = 100_000
const CANCEL = { 'Node-Features': 'cancel' }
const PIECE = textChunk('x'.repeat(1_000))

let stage: NodesStage
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
})

function wantsEndless({ chat_request: request }: ChatFrame): boolean {
  return JSON.stringify(request).includes('endless')
}

function isReported(node: ScriptedNode, id: string): boolean {
  return node.controls.some(({ protocol, data }) => protocol === 'cancel' && data.request_id === id)
}

/** Streams until its run is cancelled, as an honest node with a long answer does. */
const answerEndlessly: AnswerScript = async ({ id }, node) => {
  while (node.socket.readyState === node.socket.OPEN && !isReported(node, id)) {
    node.sendRun(id, { chunk: PIECE, status: 1 })
    await turn()
  }
  if (node.socket.readyState === node.socket.OPEN) node.sendRun(id, { status: 2 })
}

/** Ends a run of the gateway's that is held back until `release` is called. */
function heldAnswers() {
  const held = Promise.withResolvers<void>()
  const ids = new Set<string>()
  const answer: AnswerScript = async (call, node) => {
    ids.add(call.id)
    node.sendRun(call.id, { chunk: textChunk('all '), status: 1 })
    await held.promise
    await answerWith('is well')(call, node)
  }
  return { answer, ids, release: held.resolve }
}

const ENDLESS = { model: 'model-a', messages: [{ role: 'user', content: 'endless' }] }

/** One caller asks for an endless answer while five others are answered by the same node. */
async function attack(node: {
  readonly headers?: Readonly<Record<string, string>>
  readonly endless: AnswerScript
}) {
  const others = heldAnswers()
  const connected = await stage.connect({
    answer: (call, self) =>
      wantsEndless(call) ? node.endless(call, self) : others.answer(call, self),
    ...(node.headers === undefined ? {} : { headers: node.headers }),
  })
  const answers = Array.from({ length: 5 }, async () => readAll(await stage.dispatch()))
  await eventually(() => others.ids.size === 5, 'five others are answered')
  const error: unknown = await stage
    .dispatch({ request: ENDLESS })
    .then(readAll)
    .catch((fault: unknown) => fault)
  return { node: connected, answers, error: error as DispatchError, release: others.release }
}

it.each([
  ['can be told to stop', CANCEL, answerEndlessly],
  ['cannot be told, as the public client', undefined, answerBeyondTheLimit()],
])(
  'an answer beyond all bounds costs its own caller the call, and no other, of a node that %s',
  async (_, headers, endless) => {
    stage = await openNodesStage({
      answerBytesMax: ANSWER_BYTES_MAX,
      tokenMs: 30_000,
      firstTokenMs: 30_000,
      drainMs: 30_000,
      runMs: 60_000,
    })
    const attacked = await attack({ endless, ...(headers === undefined ? {} : { headers }) })
    expect(attacked.error).toMatchObject({ code: 'answer_too_large' })
    const reported = nodeCallErrorOf(attacked.error)
    expect(reported.code).toBe('answer_too_large')
    expect(reported.message).toContain('larger than the 100000 bytes')
    await eventually(() => stage.nodes.status().runs === 5, 'the run of the attacker is over')
    attacked.release()
    const texts = (await Promise.all(attacked.answers)).map(textOf)
    expect(texts).toEqual(Array.from({ length: 5 }, () => 'all is well'))
    expect(attacked.node.socket.readyState).toBe(attacked.node.socket.OPEN)
    expect(stage.nodes.status()).toMatchObject({ connected: 1, serving: 1, slotsInUse: 0 })
  },
)

it('an answer beyond all bounds, asked for again and again, sets no node aside: its caller chose its length', async () => {
  stage = await openNodesStage({ answerBytesMax: ANSWER_BYTES_MAX, firstTokenMs: 30_000 })
  await stage.connect({ headers: CANCEL, answer: answerEndlessly })
  for (let count = 0; count < 5; count++)
    await expect(stage.dispatch().then(readAll)).rejects.toMatchObject({
      code: 'answer_too_large',
    })
  expect(stage.nodes.status()).toMatchObject({ connected: 1, serving: 1 })
})

it('a node that goes on with a large answer after the cancel frame is expelled', async () => {
  stage = await openNodesStage({
    answerBytesMax: ANSWER_BYTES_MAX,
    lateBytesMax: ANSWER_BYTES_MAX,
    drainMs: 30_000,
    runMs: 60_000,
  })
  const node = await stage.connect({ headers: CANCEL, answer: answerForEver })
  await expect(stage.dispatch().then(readAll)).rejects.toMatchObject({ code: 'answer_too_large' })
  const reason = 'Frames of a run that was ended go on'
  expect(await node.closed).toEqual({ code: 1008, reason })
  expect(node.controls).toContainEqual(expect.objectContaining({ protocol: 'cancel' }))
})

it('a large answer whose caller left costs the node nothing either', async () => {
  const limits = { answerBytesMax: ANSWER_BYTES_MAX, lateBytesPerSecond: 1e12 }
  stage = await openNodesStage({ ...limits, drainMs: 30_000, runMs: 60_000 })
  const node = await stage.connect({ answer: answerBeyondTheLimit() })
  const left = new AbortController()
  const answer = await stage.dispatch({ signal: left.signal })
  left.abort(new Error('the caller left'))
  await expect(readAll(answer)).rejects.toThrow('the caller left')
  await eventually(() => stage.nodes.status().runs === 0, 'the node came to its end')
  expect(node.socket.readyState).toBe(node.socket.OPEN)
})

/** Its backend cannot be stopped: it comes to an end by itself. */
function answerBeyondTheLimit(): AnswerScript {
  return async ({ id }, node) => {
    for (let bytes = 0; bytes < 1.5 * ANSWER_BYTES_MAX; bytes += 1_000) {
      node.sendRun(id, { chunk: PIECE, status: 1 })
      await turn()
    }
    node.sendRun(id, { status: 2 })
  }
}

const answerForEver: AnswerScript = async ({ id }, node) => {
  while (node.socket.readyState === node.socket.OPEN) {
    node.sendRun(id, { chunk: PIECE, status: 1 })
    await turn()
  }
}
