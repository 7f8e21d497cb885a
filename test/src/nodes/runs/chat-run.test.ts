import { expect, it } from 'vitest'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { decodeNodeFrame } from '#src/nodes/protocol/frames.ts'
import { askChat, ChatRun } from '#src/nodes/runs/chat-run.ts'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import { finishChunk, textChunk, usageChunk } from '../../../support/scripted-node.ts'

/** Runs a call on a node that sends these chunks, each with `status`, and returns the run. */
function play(chunks: readonly object[], status: number | undefined): ChatRun {
  const request = { model: 'm', messages: [{ role: 'user', content: 'Hi' }] }
  const run = new ChatRun({
    id: 'r1',
    offer: { model: 'm', speed: { firstTokenMs: null, tokensPerSecond: null } },
    slot: { release: () => undefined },
    accountId: 'account',
    signal: new AbortController().signal,
    isProbe: false,
    isCancellable: false,
    limits: NODE_LIMITS,
    now: () => 0,
    emit: () => undefined,
    question: askChat('m', request),
    reader: createNodeChunks({ identity: { id: 'i', created: 1, model: 'm' }, choicesAsked: 1 }),
  })
  const send = (chunk: object | null, state: number | undefined) => {
    const text = JSON.stringify({ request_id: 'r1', error: null, chunk, status: state })
    const frame = decodeNodeFrame(Buffer.from(text))
    if (frame.kind !== 'run') throw new TypeError('expected a frame of a run')
    run.receive(frame, text.length)
  }
  for (const chunk of chunks) send(chunk, status)
  if (status !== undefined) send(null, 2)
  return run
}

const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }

it.each([
  ['before the first text', [usageChunk(1, 0), textChunk('a b'), finishChunk()], 0],
  ['between texts', [textChunk('a'), usageChunk(1, 1), textChunk('b'), finishChunk()], 1],
  [
    'before and at the end',
    [usageChunk(1, 0), textChunk('a b'), finishChunk(), usageChunk(1, 2)],
    2,
  ],
  ['without the member', [textChunk('a b'), finishChunk(), { id: 'x', usage }], 2],
  ['that is null', [textChunk('a b'), finishChunk(), { id: 'x', choices: null, usage }], 2],
])('a usage chunk %s leaves the answer whole', (_, chunks, completionTokens) => {
  const run = play(chunks, 1)
  expect(run.result).toEqual({ kind: 'done' })
  expect(run.inferenceOf('node')).toMatchObject({ promptTokens: 1, completionTokens })
})

it("a usage chunk ends an old client's run", () => {
  expect(play([textChunk('a b'), finishChunk(), usageChunk(1, 2)], undefined).result).toEqual({
    kind: 'done',
  })
  expect(play([usageChunk(1, 2)], undefined).result).toMatchObject({ kind: 'failed' })
})
