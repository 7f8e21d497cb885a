import { getEventListeners } from 'node:events'
import { expect, it } from 'vitest'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { decodeNodeFrame } from '#src/nodes/protocol/frames.ts'
import { askChat, ChatRun } from '#src/nodes/runs/chat-run.ts'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import { finishChunk, textChunk, usageChunk } from '../../../support/scripted-node.ts'

/** A run of a call, and what its node sends. */
function openRun() {
  const clock = { atMs: 0 }
  const { signal } = new AbortController()
  const ends: string[] = []
  const run = new ChatRun({
    id: 'r1',
    offer: { model: 'm', speed: { firstTokenMs: null, tokensPerSecond: null } },
    slot: { release: () => undefined },
    accountId: 'account',
    signal,
    isProbe: false,
    isCancellable: false,
    limits: NODE_LIMITS,
    now: () => clock.atMs,
    emit: (_, { kind }) => ends.push(kind),
    question: askChat('m', { model: 'm', messages: [{ role: 'user', content: 'Hi' }] }),
    reader: createNodeChunks({ identity: { id: 'i', created: 1, model: 'm' }, choicesAsked: 1 }),
  })
  const send = (chunk: object | null, status: number | null = 1) => {
    const text = JSON.stringify({ request_id: 'r1', error: null, chunk, status })
    const frame = decodeNodeFrame(Buffer.from(text))
    if (frame.kind !== 'run') throw new TypeError('expected a frame of a run')
    run.receive(frame, text.length)
  }
  /** Looks at the run's deadlines after so long. */
  const pass = (ms: number) => {
    clock.atMs += ms
    run.check(clock.atMs)
    return run.result
  }
  return { run, send, pass, signal, ends }
}

/** Plays a call whose node sends these chunks, each with `status`, and returns the run. */
function play(chunks: readonly object[], status: number | null): ChatRun {
  const { run, send } = openRun()
  for (const chunk of chunks) send(chunk, status)
  if (status !== null) send(null, 2)
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
  expect(play([textChunk('a b'), finishChunk(), usageChunk(1, 2)], null).result).toEqual({
    kind: 'done',
  })
  expect(play([usageChunk(1, 2)], null).result).toMatchObject({ kind: 'failed' })
})

it('a run waits for its first token as long as it may, and lets its signal go when it ends', () => {
  const { pass, signal, ends } = openRun()
  expect(pass(NODE_LIMITS.firstTokenMs - 1)).toBeNull()
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  expect(pass(1)).toMatchObject({ error: { code: 'first_token_timeout' } })
  expect(getEventListeners(signal, 'abort')).toEqual([])
  expect(ends.at(-1)).toBe('draining')
  pass(NODE_LIMITS.drainMs - 1)
  expect(ends.at(-1)).toBe('draining')
  pass(1)
  expect(ends.at(-1)).toBe('abandoned')
})

it('a run goes on while tokens come, to its own limit, and fails when one is late', async () => {
  const late = openRun()
  void late.run.firstToken
  for (let token = 0; token < 3; token++) {
    late.send(textChunk('x'))
    expect(late.pass(NODE_LIMITS.tokenMs - 1)).toBeNull()
    late.send(textChunk(''))
  }
  expect(late.pass(1)).toMatchObject({ error: { code: 'token_timeout' } })
  const endless = openRun()
  for (let atMs = 0; atMs + 1_000 < NODE_LIMITS.runMs; atMs += 1_000) {
    endless.send(textChunk('x'))
    expect(endless.pass(1_000)).toBeNull()
  }
  expect(endless.pass(1_000)).not.toBeNull()
})

it('a run that ended its choice waits a short while for its usage', () => {
  const { run, send, pass } = openRun()
  send(textChunk('x'))
  send(finishChunk())
  expect(pass(NODE_LIMITS.finishGraceMs - 1)).toBeNull()
  expect(pass(1)).toEqual({ kind: 'done' })
  // Estimated.
  expect(run.inferenceOf('node')).toMatchObject({ completionTokens: 1 })
})
