import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import type { AnswerChunk } from '#src/agent/answer-parser.ts'
import { BackendError } from '#src/agent/backend-error.ts'
import { type BenchmarkProgress, runBenchmark } from '#src/agent/benchmark.ts'
import { TOKENS_PER_SECOND_MAX } from '#src/nodes/protocol/registration.ts'
import { textChunk, usageChunk } from '../../support/scripted-backend.ts'

const signal = new AbortController().signal
const now = () => performance.now()

/** A clock that goes on to the next sleeper by itself, when nothing else is left to do. */
function createClock() {
  let nowMs = 0
  let sleepers: readonly { readonly atMs: number; readonly wake: () => void }[] = []
  const turn = () => {
    const [first, ...others] = sleepers.toSorted((one, other) => one.atMs - other.atMs)
    if (first === undefined) return
    sleepers = others
    nowMs = first.atMs
    first.wake()
    // In a turn of its own: by then, who was woken sleeps again or has ended.
    if (others.length > 0) setImmediate(turn)
  }
  const sleep = async (ms: number, stop: AbortSignal) => {
    await new Promise<void>((wake) => {
      if (sleepers.length === 0) setImmediate(turn)
      sleepers = [...sleepers, { atMs: nowMs + ms, wake }]
    })
    stop.throwIfAborted()
  }
  return { now: () => nowMs, sleep }
}

function answerChunk(chunk: object): AnswerChunk {
  return { chunk: chunk as JsonObject, text: JSON.stringify(chunk) }
}

/**
 * A model that takes `tokenMs` for a token, sends `perChunk` tokens in each chunk, and counts in
 * usage.
 */
function modelOf({
  tokenMs,
  perChunk = 1,
}: {
  readonly tokenMs: number
  readonly perChunk?: number
}) {
  const { now, sleep } = createClock()
  const counts = { running: 0, most: 0, requests: [] as JsonObject[] }
  async function* streamChat(
    request: JsonObject,
    stop: AbortSignal,
  ): AsyncGenerator<readonly AnswerChunk[]> {
    counts.requests.push(request)
    counts.running += 1
    counts.most = Math.max(counts.most, counts.running)
    try {
      yield [
        answerChunk({
          ...textChunk(''),
          choices: [{ index: 0, delta: { role: 'assistant', content: '' } }],
        }),
      ]
      const tokens = Number(request.max_tokens)
      for (let sent = 0; sent < tokens; sent += perChunk) {
        await sleep(tokenMs * perChunk, stop)
        yield [answerChunk(textChunk('word '.repeat(perChunk)))]
      }
      yield [answerChunk(usageChunk(tokens))]
    } finally {
      counts.running -= 1
    }
  }
  return { backend: { streamChat }, counts, now }
}

it('a benchmark measures one request, then several at once, by the tokens that usage counts', async () => {
  const { backend, counts, now } = modelOf({ tokenMs: 5, perChunk: 2 })
  const seen: BenchmarkProgress[] = []
  const plan = { durationMs: 1_000, concurrency: 4 }
  const onProgress = (progress: BenchmarkProgress) => seen.push(progress)
  const { single, total } = await runBenchmark(backend, 'm', { plan, now, signal, onProgress })
  expect([single, total]).toEqual([200, 800])
  expect(counts.most).toBe(4)
  expect(counts.running).toBe(0)
  expect(
    seen.map(({ part }) => part).filter((part, index, all) => part !== all[index - 1]),
  ).toEqual(['warming up', 'one request', 'many requests'])
  expect(seen.at(-1)?.done).toBe(1)
})

it('a benchmark tells no higher speed than gateways take', async () => {
  async function* streamChat(): AsyncGenerator<readonly AnswerChunk[]> {
    yield [answerChunk(textChunk('a'))]
    yield [answerChunk(textChunk('b')), answerChunk(usageChunk(1_000_000_000))]
  }
  const plan = { durationMs: 10, concurrency: 1 }
  const result = await runBenchmark({ streamChat }, 'm', { plan, now, signal })
  expect(result.total).toBe(TOKENS_PER_SECOND_MAX)
})

it.each([
  ['no usage', [textChunk('a'), textChunk('b')], 'no usage'],
  ['one token', [textChunk('a'), usageChunk(1)], 'too few tokens'],
  ['usage without an answer', [usageChunk(100)], 'too few tokens'],
])('a benchmark rejects for a backend that gives %s', async (_, chunks, message) => {
  async function* streamChat(): AsyncGenerator<readonly AnswerChunk[]> {
    yield chunks.map(answerChunk)
  }
  const run = runBenchmark({ streamChat }, 'm', {
    plan: { durationMs: 10, concurrency: 1 },
    now,
    signal,
  })
  await expect(run).rejects.toThrow(BackendError)
  await expect(run).rejects.toThrow(message)
})

it('a benchmark counts reasoning as tokens, and no tokens for a role or an empty text', async () => {
  const chunk = (delta: object) => answerChunk({ ...textChunk(''), choices: [{ index: 0, delta }] })
  const times = [0, 100, 200, 300, 1_000]
  let time = 0
  async function* streamChat(): AsyncGenerator<readonly AnswerChunk[]> {
    const deltas = [
      { role: 'assistant', content: '' },
      { reasoning_content: 'r' },
      { content: 'a' },
      { content: '' },
    ]
    for (const [index, delta] of deltas.entries()) {
      time = times[index] ?? 0
      yield [chunk(delta)]
    }
    time = 1_000
    yield [answerChunk(usageChunk(11))]
  }
  const plan = { durationMs: 10, concurrency: 1 }
  const { single } = await runBenchmark({ streamChat }, 'm', { plan, now: () => time, signal })
  expect(single).toBe(100)
})

it('a benchmark that fails leaves no request running', async () => {
  const { backend, counts, now } = modelOf({ tokenMs: 2 })
  const streamChat: typeof backend.streamChat = async function* (request, stop) {
    if (counts.running >= 3) throw new BackendError('out of memory')
    yield* backend.streamChat(request, stop)
  }
  const plan = { durationMs: 60_000, concurrency: 4 }
  await expect(runBenchmark({ streamChat }, 'm', { plan, now, signal })).rejects.toThrow(
    'out of memory',
  )
  const asked = counts.requests.length
  await expect.poll(() => counts.running).toBe(0)
  expect(counts.requests).toHaveLength(asked)
})

it('a benchmark ends when it is aborted', async () => {
  const { backend, counts } = modelOf({ tokenMs: 20 })
  const stop = AbortSignal.timeout(100)
  const run = runBenchmark(backend, 'm', {
    plan: { durationMs: 60_000, concurrency: 2 },
    now,
    signal: stop,
  })
  await expect(run).rejects.toThrow()
  expect(counts.running).toBe(0)
})

it('a benchmark counts an answer that came all at once from when it was asked for', async () => {
  let time = 0
  async function* streamChat(): AsyncGenerator<readonly AnswerChunk[]> {
    time += 100
    yield [answerChunk(textChunk('a')), answerChunk(textChunk('b')), answerChunk(usageChunk(20))]
  }
  const plan = { durationMs: 10, concurrency: 1 }
  const { single } = await runBenchmark({ streamChat }, 'm', { plan, now: () => time, signal })
  expect(single).toBe(200)
})
