import type { Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { WebSocket } from 'ws'
import type { JsonObject } from '#attestation/json/value.ts'
import { createNodeChunks, type NodeChunks } from '#src/chat/node-chunks.ts'
import type { NodeAnswer } from '#src/nodes/runs/dispatch.ts'
import { FAR_OFF_MS } from '../../../support/at-once.ts'
import {
  eventually,
  MODEL,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  readAll,
  textOf,
} from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerWith,
  finishChunk,
  type ScriptedNode,
  textChunk,
  usageChunk,
} from '../../../support/scripted-node.ts'

let stage: NodesStage
beforeEach(async () => {
  stage = await openNodesStage({ firstTokenMs: FAR_OFF_MS, tokenMs: FAR_OFF_MS })
})
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
})

/** Sends frames of a run in one write. */
function sendPacket(
  { id, node }: { readonly id: string; readonly node: ScriptedNode },
  frames: readonly Parameters<ScriptedNode['sendRun']>[1][],
): void {
  const { _socket: raw } = node.socket as WebSocket & { readonly _socket: Socket }
  raw.cork()
  for (const frame of frames) node.sendRun(id, frame)
  raw.uncork()
}

/** The batches of an answer, and how it broke off; null when it did not. */
async function readBatches({
  batches,
}: NodeAnswer): Promise<{ readonly texts: readonly string[]; readonly fault: unknown }> {
  const texts: string[] = []
  try {
    for await (const { chunks } of batches) texts.push(textOf(chunks))
  } catch (fault) {
    return { texts, fault }
  }
  return { texts, fault: null }
}

/** Dispatches a call whose answer is read as callers' are. */
function dispatchRead(request: JsonObject = {}): Promise<NodeAnswer> {
  const openReader = (): NodeChunks =>
    createNodeChunks({
      identity: { id: 'chatcmpl-1', created: 1, model: MODEL },
      choicesAsked: typeof request.n === 'number' ? request.n : 1,
    })
  const { signal } = new AbortController()
  return stage.nodes.dispatcher.dispatch({
    model: MODEL,
    accountId: null,
    signal,
    openReader,
    request: { model: MODEL, messages: [], ...request },
  })
}

const running = (chunk: unknown) => ({ chunk, status: 1 }) as const
const FAILED = { error: { status_code: 500, message: 'no' }, status: 3 } as const

it('frames in one packet are given before the error that is among them, and no other node is asked', async () => {
  const answer: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [running(textChunk('a')), running(textChunk('b')), FAILED])
  const nodes = [await stage.connect({ answer }), await stage.connect({ answer })]
  const { texts, fault } = await readBatches(await stage.dispatch())
  expect(texts).toEqual(['ab'])
  expect(fault).toMatchObject({ code: 'node_failed' })
  expect(nodes.flatMap(({ calls }) => calls)).toHaveLength(1)
})

it('frames in one packet may be the whole answer, of new clients and old ones', async () => {
  const answer: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [
      ...[textChunk('a'), finishChunk(), usageChunk(3, 2)].map(running),
      { status: 2 },
    ])
  for (const isOld of [false, true]) {
    const node = await stage.connect({ answer, isOld })
    const chunks = await readAll(await stage.dispatch())
    expect(textOf(chunks)).toBe('a')
    expect(chunks.at(-1)?.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 2 })
    await node.close()
  }
  await eventually(() => stage.registry.served.length === 2, 'counted once each')
})

it('frames of several calls in one packet go to their own callers', async () => {
  const asked: { readonly id: string; readonly node: ScriptedNode }[] = []
  await stage.connect({ answer: ({ id }, node) => void asked.push({ id, node }) })
  const dispatched = [stage.dispatch(), stage.dispatch()].map(async (answer) =>
    readAll(await answer),
  )
  await eventually(() => asked.length === 2, 'asked')
  const [first, second] = asked
  if (first === undefined || second === undefined) throw new TypeError('expected two calls')
  const frames = ['1', '2'].flatMap((text) =>
    [first, second].map(({ id }) => ({ id, chunk: textChunk(`${text}${id}`) })),
  )
  const { _socket: raw } = first.node.socket as WebSocket & { readonly _socket: Socket }
  raw.cork()
  for (const { id, chunk } of frames) first.node.sendRun(id, running(chunk))
  for (const { id } of [first, second]) first.node.sendRun(id, { status: 2 })
  raw.uncork()
  expect((await Promise.all(dispatched)).map(textOf).toSorted()).toEqual(
    [first, second].map(({ id }) => `1${id}2${id}`).toSorted(),
  )
})

it('frames in one packet are discarded, and cancelled once, when the caller leaves between them', async () => {
  const node = await stage.connect({
    headers: { 'Node-Features': 'cancel' },
    answer: ({ id }, to) => {
      sendPacket({ id, node: to }, [running(textChunk('a')), running(textChunk('b'))])
      setTimeout(() => sendPacket({ id, node: to }, [running(textChunk('c')), { status: 2 }]), 50)
    },
  })
  for await (const _ of (await stage.dispatch()).batches) break
  expect(stage.nodes.status().slotsInUse).toBe(1)
  await eventually(() => stage.nodes.status().slotsInUse === 0, 'drained')
  expect(node.controls.filter(({ protocol }) => protocol === 'cancel')).toHaveLength(1)
})

it('an answer that was refused does not count as served when the node then says that it is done', async () => {
  const nonsense: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [
      running({ choices: [{ index: 7, delta: { content: 'x' }, finish_reason: 'stop' }] }),
      running(usageChunk(1, 1)),
      { status: 2 },
    ])
  await stage.connect({ answer: nonsense })
  await expect(dispatchRead()).rejects.toMatchObject({ code: 'node_failed' })
  await stage.connect({ answer: answerWith('well'), model: 'other', nodeId: 'honest' })
  await readAll(await stage.dispatch({ model: 'other' }))
  const nodeIds = () => stage.registry.served.map(({ nodeId }) => nodeId)
  await eventually(() => nodeIds().includes('honest'), 'stored')
  expect(nodeIds()).toEqual(['honest'])
})
