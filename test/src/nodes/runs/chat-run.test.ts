import { getEventListeners } from 'node:events'
import { expect, it } from 'vitest'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { decodeNodeFrame } from '#src/nodes/protocol/frames.ts'
import { type AnswerReader, askChat, ChatRun } from '#src/nodes/runs/chat-run.ts'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import { createEventReader } from '#src/nodes/runs/read-event.ts'
import type { RunEvent } from '#src/nodes/runs/run.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { finishChunk, textChunk, usageChunk } from '../../../support/scripted-node.ts'

/** A run of a call, and what its node sends. */
function openRunOf<Reader extends AnswerReader>(
  question: ReturnType<typeof askChat>,
  reader: Reader,
) {
  const clock = { atMs: 0 }
  const leaving = new AbortController()
  const { signal } = leaving
  const events: RunEvent['kind'][] = []
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
    emit: (_, { kind }) => events.push(kind),
    question,
    reader,
  })
  const send = (chunk: object | null, status: number | null = 1) => {
    const text = JSON.stringify({ request_id: 'r1', error: null, chunk, status })
    const frame = decodeNodeFrame(Buffer.from(text))
    if (frame.kind !== 'run') throw new TypeError('expected a frame of a run')
    return run.receive(frame, text.length)
  }
  /** Looks at the run's deadlines after so long. */
  const pass = (ms: number) => {
    clock.atMs += ms
    run.check(clock.atMs)
    return run.result
  }
  const leave = () => leaving.abort(new Error('the caller left'))
  return { run, reader, events, send, pass, signal, leave }
}

/** A run of a call for a chat completion. */
const openChat = () =>
  openRunOf(
    askChat('m', { model: 'm', messages: [{ role: 'user', content: 'Hi' }] }),
    createNodeChunks({ identity: { id: 'i', created: 1, model: 'm' }, choicesAsked: 1 }),
  )

/** A run of a call in the dialect Responses. */
const openRun = (isStream = true) =>
  openRunOf(
    askChat('m', { model: 'm', input: 'x', stream: isStream }, 'responses'),
    createEventReader('responses'),
  )

/** Plays a call whose node sends these chunks, each with `status`, and returns the run. */
function play(chunks: readonly object[], status: number | null): ChatRun {
  const { run, send } = openChat()
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
  const { pass, signal, events } = openChat()
  expect(pass(NODE_LIMITS.firstTokenMs - 1)).toBeNull()
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  expect(pass(1)).toMatchObject({ error: { code: 'first_token_timeout' } })
  expect(getEventListeners(signal, 'abort')).toEqual([])
  expect(events.at(-1)).toBe('draining')
  pass(NODE_LIMITS.drainMs - 1)
  expect(events.at(-1)).toBe('draining')
  pass(1)
  expect(events.at(-1)).toBe('abandoned')
})

it('a run goes on while tokens come, to its own limit, and fails when one is late', async () => {
  const late = openChat()
  void late.run.firstToken
  for (let token = 0; token < 3; token++) {
    late.send(textChunk('x'))
    expect(late.pass(NODE_LIMITS.tokenMs - 1)).toBeNull()
    late.send(textChunk(''))
  }
  expect(late.pass(1)).toMatchObject({ error: { code: 'token_timeout' } })
  const endless = openChat()
  for (let atMs = 0; atMs + 1_000 < NODE_LIMITS.runMs; atMs += 1_000) {
    endless.send(textChunk('x'))
    expect(endless.pass(1_000)).toBeNull()
  }
  expect(endless.pass(1_000)).not.toBeNull()
})

it('a run that ended its choice waits a short while for its usage', () => {
  const { run, send, pass } = openChat()
  send(textChunk('x'))
  send(finishChunk())
  expect(pass(NODE_LIMITS.finishGraceMs - 1)).toBeNull()
  expect(pass(1)).toEqual({ kind: 'done' })
  // Estimated.
  expect(run.inferenceOf('node')).toMatchObject({ completionTokens: 1 })
})

const event = (name: string, data: object) => ({ event: name, data: JSON.stringify(data) })

it.each([
  { prompt_tokens: 1e12, completion_tokens: 1e12 },
  { prompt_tokens: -2_000_000, completion_tokens: -500_000 },
  { prompt_tokens: 0.5, completion_tokens: 0 },
])('a usage beside the event or the body is not taken: %j', (usage) => {
  const body = openRun(false)
  body.send({ body: '{"ok":true}', is_last: false, usage })
  body.send({ body: '', is_last: true, usage })
  expect(body.reader.usage()).toBeNull()
  const stream = openRun()
  stream.send({ ...event('x', { delta: 'hello' }), usage })
  expect(stream.reader.usage()).toBeNull()
  const stated = { usage: { input_tokens: 3, output_tokens: 2 } }
  stream.send({ ...event('response.completed', { response: stated }), usage })
  expect(stream.reader.usage()).toMatchObject({ prompt_tokens: 3, completion_tokens: 2 })
})

it('a body is parsed once: a second last piece is refused', async () => {
  const { run, send, reader } = openRun(false)
  const usage = '"usage":{"input_tokens":4,"output_tokens":1}'
  send({ body: `{"pad":[1${',1'.repeat(450_000)}],`, is_last: false })
  send({ body: `${usage}}`, is_last: true })
  expect(reader.usage()).toMatchObject({ prompt_tokens: 4, completion_tokens: 1 })
  await run.firstToken
  const startedAtMs = performance.now()
  for (let count = 0; count < 200; count++) send({ body: '', is_last: true })
  expect(performance.now() - startedAtMs).toBeLessThan(AT_ONCE_MS)
  expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
})

const USAGE = '"usage":{"input_tokens":4,"output_tokens":1}'
const promptTokensOf = ({ run, send }: ReturnType<typeof openRun>, padLength: number) => {
  for (let sent = 0; sent <= padLength; sent += 100_000)
    send({ body: sent === 0 ? '{"pad":"' : 'x'.repeat(100_000), is_last: false })
  send({ body: `",${USAGE}`, is_last: false })
  send({ body: '}', is_last: true })
  return run.inferenceOf('node').promptTokens
}

it.each([
  ['while its caller waits', false],
  ['after its caller has left', true],
])('a body of any length states its usage at its end: %s', (_, hasLeft) => {
  for (const padLength of [0, 1_200_000]) {
    const opened = openRun(false)
    if (hasLeft) opened.leave()
    expect(promptTokensOf(opened, padLength)).toBe(4)
  }
})

it.each([
  ['before it', `"tools":[{"usage":{"type":"object"}}],${USAGE}`],
  ['after it', `${USAGE},"tools":[{"usage":{"type":"object"}}]`],
])('the usage of a long body is found, with a caller’s schema of that name %s', (_, end) => {
  const { run, send } = openRun(false)
  send({ body: `{"pad":"${'x'.repeat(1_200_000)}",${end}}`, is_last: true })
  expect(run.inferenceOf('node').promptTokens).toBe(4)
})

it('a long body states its usage neither far from its end nor inside a text', () => {
  const long = 'x'.repeat(1_200_000)
  for (const body of [`{${USAGE},"pad":"${long}"}`, JSON.stringify({ pad: `${long}{${USAGE}}` })]) {
    const { run, send } = openRun(false)
    send({ body, is_last: true })
    expect(run.result).toBeNull()
    expect(run.inferenceOf('node').promptTokens).not.toBe(4)
  }
})

it.each([
  ['data: [DONE]\n\n'],
  ['<html>'],
  ['[{}]'],
  ['"text"'],
  ['{"output":'],
  [`{"output":"${'x'.repeat(1_200_000)}"`],
  [''],
])('a body that is not a JSON object is a failure of the node: %#', (body) => {
  const { run, send, events } = openRun(false)
  send({ body, is_last: true })
  send(null, 2)
  expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
  expect(events).not.toContain('served')
})

it.each([
  ['the first event of a stream', true, NODE_LIMITS.firstTokenMs],
  ['a whole answer', false, NODE_LIMITS.runMs],
])('a run waits for %s as long as it may', (_, isStream, limitMs) => {
  const { pass } = openRun(isStream)
  expect(pass(limitMs - 1)).toBeNull()
  expect(pass(1)).toMatchObject({ kind: 'failed', error: { code: 'first_token_timeout' } })
})

it('a page is refused at its first piece, so that another node can be asked', async () => {
  const { run, send } = openRun(false)
  send({ body: ' \n', is_last: false })
  send({ body: '<html>', is_last: false })
  expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
})

it('events for an unstreamed call, and a body for a stream, are refused', () => {
  for (const [isStream, chunk] of [
    [false, { event: '', data: '[DONE]' }],
    [true, { body: '{}', is_last: true }],
  ] as const) {
    const { run, send, events } = openRun(isStream)
    send(chunk)
    send(null, 2)
    expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
    expect(events).not.toContain('served')
  }
})

it.each([
  [
    true,
    [
      { event: '', data: 'x\0' },
      { event: '', data: '[DONE]' },
    ],
  ],
  [
    false,
    [
      { body: `{"pad":"${'x'.repeat(1_200_000)}\0"`, is_last: false },
      { body: '}', is_last: true },
    ],
  ],
])('an answer with U+0000 is refused, streamed: %s', (isStream, chunks) => {
  const { run, send, events } = openRun(isStream)
  for (const chunk of chunks) send(chunk)
  send(null, 2)
  expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
  expect(events).not.toContain('served')
})

it('a long body of brackets is not parsed', () => {
  const { run, send } = openRun(false)
  send({ body: '{"pad":[', is_last: false })
  const part = '[],'.repeat(300_000)
  for (let count = 0; count < 5; count++) send({ body: part, is_last: false })
  const before = process.cpuUsage()
  send({ body: `0],${USAGE}}`, is_last: true })
  const { user } = process.cpuUsage(before)
  JSON.parse(`[${part.repeat(5)}0]`)
  expect(user).toBeLessThan(process.cpuUsage(before).user - user)
  expect(run.inferenceOf('node').promptTokens).toBe(4)
})

it('a run that is abandoned holds neither its body nor its reader', () => {
  const opened = openRun(false)
  const { run, send, leave, pass } = opened
  send({ body: `{${USAGE}`, is_last: false })
  leave()
  pass(NODE_LIMITS.drainMs)
  expect(run.options.reader).toBeNull()
  send({ body: '}', is_last: true })
  expect(run.inferenceOf('node').promptTokens).not.toBe(4)
})

it('an event without data of another agent neither reaches the caller nor begins or ends the answer', async () => {
  const { run, send, reader } = openRun()
  for (const name of ['', 'ping', 'error', 'message_stop']) send({ event: name, data: ' ' })
  expect(run.result).toBeNull()
  expect(run.times()).toBeNull()
  expect(reader.isFailed() || reader.isEnded()).toBe(false)
  const said = [event('x', { delta: 'hello' }), event('response.completed', {})]
  for (const chunk of said) send(chunk)
  send(null, 2)
  const given: unknown[] = []
  for await (const { chunks } of run.batches) given.push(...chunks)
  expect(given).toMatchObject(said)
  expect(given).toHaveLength(said.length)
})

// `transformers serve` writes only `data` lines, and no [DONE].
it('an event without a name gets its type, and the last of them ends the answer', async () => {
  const { run, send, reader } = openRun()
  const said = ['response.created', 'response.output_text.delta', 'response.completed'].map(
    (type) => ({ name: type, data: { type, delta: 'hello', response: { id: 'resp_1' } } }),
  )
  for (const { data } of said) send(event('', data))
  send(null, 2)
  const given: unknown[] = []
  for await (const { chunks } of run.batches) given.push(...chunks)
  expect(given).toMatchObject(said.map(({ name, data }) => event(name, data)))
  expect(reader.isEnded()).toBe(true)
  expect(run.result).toMatchObject({ kind: 'done' })
})

it('data without a type, or with one that cannot be a name, stays without a name', async () => {
  const { run, send } = openRun()
  const said = [event('', { choices: [{ text: 'a' }] }), event('', { type: 'a\nb', delta: 'c' })]
  for (const chunk of said) send(chunk)
  send(event('message_stop', {}))
  send(null, 2)
  const given: unknown[] = []
  for await (const { chunks } of run.batches) given.push(...chunks)
  expect(given.slice(0, 2)).toMatchObject(said)
})

// https://github.com/router-for-me/CLIProxyAPI/issues/4904
it('a stream of Responses that ends with [DONE] and without its last event is cut', async () => {
  const { run, send } = openRun()
  send(event('x', { delta: 'hello' }))
  send({ event: '', data: '[DONE]' })
  send(null, 2)
  const read = async () => {
    for await (const _ of run.batches);
  }
  await expect(read()).rejects.toMatchObject({ code: 'node_failed' })
})

const OVERLOADED = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }
const FAILURES = [
  event('error', OVERLOADED),
  event('response.failed', { response: { status: 'failed' } }),
  event('', { error: { message: 'out of memory', code: 500 } }),
  event('', { type: 'response.failed', response: { status: 'failed' } }),
]

it.each(FAILURES)(
  'an error event before any text is a failure of the node: %j',
  async (failure) => {
    const { run, send, events } = openRun()
    send(event('response.created', { response: { id: 'resp_1' } }))
    send(failure)
    send({ event: '', data: '[DONE]' })
    send(null, 2)
    await expect(run.firstToken).rejects.toMatchObject({ code: 'node_failed' })
    expect(events).not.toContain('served')
  },
)

it('an error event before any text is no served answer when the caller has left', async () => {
  const { run, send, events, leave } = openRun()
  leave()
  await expect(run.firstToken).rejects.toThrow('the caller left')
  send(FAILURES[2] ?? null)
  send({ event: '', data: '[DONE]' })
  send(null, 2)
  expect(events).toContain('closed')
  expect(events).not.toContain('served')
})

it.each(FAILURES)('an error event after text is passed on: %j', async (failure) => {
  const { run, send, reader } = openRun()
  send(event('x', { delta: 'hello' }))
  expect(reader.isFailed()).toBe(false)
  send(failure)
  send({ event: '', data: '[DONE]' })
  send(null, 2)
  const names: unknown[] = []
  for await (const { chunks } of run.batches) names.push(...chunks.map(({ data }) => data))
  expect(names).toContain(failure.data)
  expect(reader.isFailed()).toBe(true)
})

/** The event in pieces of 100,000 characters. */
const piecesOf = (whole: { readonly event: string; readonly data: string }, length = 100_000) =>
  Array.from({ length: Math.ceil(whole.data.length / length) }, (_, index) => ({
    event: whole.event,
    piece: whole.data.slice(index * length, (index + 1) * length),
    is_last: (index + 1) * length >= whole.data.length,
  }))
const LONG = 'x'.repeat(1_500_000)
const LONG_RESPONSE = {
  output: LONG,
  usage: { input_tokens: 4, output_tokens: 1 },
  user: null,
}

// https://github.com/zendev-sh/goai/issues/70
it.each([
  ['with a name', event('response.completed', { response: LONG_RESPONSE })],
  ['whose type is first', event('', { type: 'response.completed', response: LONG_RESPONSE })],
  ['whose type is last', event('', { response: LONG_RESPONSE, type: 'response.completed' })],
])('an event in pieces, %s, is joined and ends the answer', async (_, completed) => {
  const { run, send, reader } = openRun()
  const delta = event('x', { delta: 'hello' })
  send(delta)
  const pieces = piecesOf(completed)
  for (const piece of pieces) {
    expect(reader.isEnded()).toBe(false)
    send(piece)
    // The agent says that its backend works.
    if (!piece.is_last) send(null)
  }
  send(null, 2)
  const given: unknown[] = []
  for await (const { chunks } of run.batches) given.push(...chunks)
  expect(given).toMatchObject([delta, { event: 'response.completed', data: completed.data }])
  expect(run.result).toEqual({ kind: 'done' })
  expect(run.inferenceOf('node')).toMatchObject({ promptTokens: 4, completionTokens: 1 })
})

it('the pieces of a slow line are signs of life', () => {
  const { send, pass } = openRun()
  send(event('x', { delta: 'hello' }))
  for (const piece of piecesOf(event('response.completed', { response: LONG_RESPONSE }))) {
    send(piece)
    expect(pass(NODE_LIMITS.finishGraceMs - 1)).toBeNull()
  }
})

it('an event larger than the queue of a caller, who has not read yet, is joined', () => {
  const { run, send } = openRun()
  const output = 'x'.repeat(NODE_LIMITS.queueBytesMax)
  for (const name of ['response.output_text.done', 'response.completed'])
    for (const piece of piecesOf(event(name, { output }))) if (run.result === null) send(piece)
  // A second event that large must wait until the first is read.
  expect(run.result).toMatchObject({ error: { code: 'node_failed' } })
  const single = openRun()
  for (const piece of piecesOf(event('response.completed', { output }))) single.send(piece)
  single.send(null, 2)
  expect(single.run.result).toEqual({ kind: 'done' })
})

it('an event in pieces counts for a node whose caller has left', () => {
  const { run, send, leave, events } = openRun()
  const [first, ...more] = piecesOf(event('response.completed', { response: LONG_RESPONSE }))
  send(first ?? null)
  leave()
  for (const piece of more) send(piece)
  send(null, 2)
  expect(events).toContain('served')
  expect(run.inferenceOf('node').promptTokens).toBe(4)
})

it.each([
  ['of two events', [open('a'), open('b')]],
  ['with an event between them', [open('a'), event('b', {})]],
  ['with a body between them', [open('a'), { body: '', is_last: true }]],
  ['without is_last', [{ event: 'a', piece: 'x' }]],
  ['without a name', [{ piece: 'x', is_last: true }]],
  ['with a line in the name', [{ event: 'a\nb', piece: 'x', is_last: true }]],
  ['with U+0000', [{ event: 'a', piece: '\0', is_last: true }]],
  ['that do not end', [open('a'), null]],
])('pieces %s are refused', (_, chunks) => {
  const { run, send, events } = openRun()
  send(event('x', { delta: 'hello' }))
  for (const chunk of chunks) send(chunk, chunk === null ? 2 : 1)
  expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
  expect(events).not.toContain('served')
})

function open(name: string) {
  return { event: name, piece: '{', is_last: false }
}

it('pieces of an unstreamed call or a chat completion are refused', () => {
  for (const { run, send } of [openRun(false), openChat()]) {
    send({ event: 'a', piece: '{}', is_last: true })
    expect(run.result).toMatchObject({ kind: 'failed', error: { code: 'node_failed' } })
  }
})

it('an event of brackets in pieces is not parsed', () => {
  const { run, send } = openRun()
  const data = `{"delta":[${'[],'.repeat(1_000_000)}0],${USAGE}}`
  for (const piece of piecesOf({ event: 'response.completed', data }, 1_000_000))
    send({ ...piece, is_last: false })
  const before = process.cpuUsage()
  send({ event: 'response.completed', piece: '', is_last: true })
  const { user } = process.cpuUsage(before)
  JSON.parse(data)
  expect(user).toBeLessThan(process.cpuUsage(before).user - user)
  expect(run.inferenceOf('node').promptTokens).toBe(4)
})

// https://github.com/antirez/ds4/issues/1006
it('a node that says that its backend works is waited for, before and amid its answer', async () => {
  const { run, send, pass } = openRun()
  for (let waited = 0; waited < 75_000; waited += 10_000) {
    expect(pass(10_000)).toBeNull()
    send(null, 1)
  }
  send(event('x', { delta: 'hello' }))
  for (let waited = 0; waited < 75_000; waited += 10_000) {
    expect(pass(10_000)).toBeNull()
    send(null, 1)
  }
  expect(pass(NODE_LIMITS.tokenMs)).toMatchObject({ error: { code: 'token_timeout' } })
  await expect(run.firstToken).resolves.toBeUndefined()
})

it('a node that only says that its backend works is not waited for without end', async () => {
  const { run, send, pass } = openRun()
  const steps = NODE_LIMITS.prefillMs / 10_000
  for (let step = 1; step < steps; step++) {
    expect(pass(10_000)).toBeNull()
    send(null, 1)
  }
  expect(pass(10_000)).toMatchObject({ error: { code: 'first_token_timeout' } })
  await expect(run.firstToken).rejects.toMatchObject({ code: 'first_token_timeout' })
})
