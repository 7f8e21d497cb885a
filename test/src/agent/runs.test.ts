import { expect, it, vi } from 'vitest'
import type { AnswerChunk } from '#src/agent/answer-parser.ts'
import { createRuns } from '#src/agent/runs.ts'
import { createLogger } from '#src/observability/logger.ts'

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const ASKED = { prompt: 'a fox', image: null, n: 1, size: '256x256' }
const CHAT = { kind: 'chat', model: 'm', dialect: null, request: {}, traceparent: null } as const

/** Runs on a backend that answers nothing until a call is aborted, and what was sent of them. */
function open(nodeType: 'LLM' | 'DIFFUSION') {
  const frames: {
    readonly request_id: string
    readonly status?: number
    readonly error: unknown
  }[] = []
  const outcomes: string[] = []
  let idle = 0
  const untilAborted = (signal: AbortSignal) =>
    new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(new Error('the backend ended')))
    })
  async function* streamChat(_: unknown, signal: AbortSignal): AsyncGenerator<AnswerChunk[]> {
    yield [await untilAborted(signal)]
  }
  const runs = createRuns({
    nodeType,
    models: ['m'],
    backend: {
      streamChat,
      streamDialect: (_dialect, request, signal) => streamChat(request, signal),
      makeImages: (_, signal) => untilAborted(signal),
    },
    send: (frame) => void frames.push(JSON.parse(frame)),
    onIdle: () => idle++,
    watchRun: () => (outcome) => outcomes.push(outcome.kind),
    log,
  })
  const start = (id: string) =>
    runs.start(nodeType === 'LLM' ? { ...CHAT, id } : { kind: 'image', id, request: ASKED })
  return { runs, start, frames, outcomes, idle: () => idle }
}

it.each([
  ['LLM', 'lost', []],
  ['LLM', 'stopped', [3, 3]],
  ['LLM', 'cancelled', [2, 2]],
  ['DIFFUSION', 'lost', []],
  ['DIFFUSION', 'stopped', ['the request was stopped', 'the request was stopped']],
  ['DIFFUSION', 'cancelled', ['the request was cancelled', 'the request was cancelled']],
] as const)(
  'runs of a node of type %s that are %s are over: nothing is counted, and %j is sent',
  async (nodeType, reason, sent) => {
    const { runs, start, frames, outcomes, idle } = open(nodeType)
    for (const id of ['r1', 'r2', 'r1']) start(id)
    expect(runs.count).toBe(2)
    runs.abort(reason)
    await expect.poll(() => runs.count).toBe(0)
    expect([outcomes, idle()]).toEqual([[reason, reason], 1])
    expect(frames.map(({ status, error }) => status ?? error)).toEqual(sent)
    start('r1')
    expect(runs.count).toBe(1)
    runs.cancel('unknown')
    runs.cancel('r1')
    await expect.poll(() => runs.count).toBe(0)
    expect([outcomes.at(-1), idle()]).toEqual(['cancelled', 2])
  },
)

it('a node says every ten seconds that its backend still works, and no longer after the run', async () => {
  vi.useFakeTimers()
  try {
    const { runs, start, frames } = open('LLM')
    start('r1')
    await vi.advanceTimersByTimeAsync(35_000)
    expect(frames).toEqual(Array(3).fill({ request_id: 'r1', error: null, chunk: null, status: 1 }))
    runs.abort('cancelled')
    await vi.advanceTimersByTimeAsync(35_000)
    expect(frames.slice(3)).toMatchObject([{ status: 2 }])
  } finally {
    vi.useRealTimers()
  }
})
