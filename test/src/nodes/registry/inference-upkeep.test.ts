import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import {
  INFERENCE_AGE_MAX_SECONDS,
  startInferenceUpkeep,
} from '#src/nodes/registry/inference-log.ts'

const NOW_MS = 1_790_000_000_500
beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A store that records what it is asked, and answers with `answer`. */
function start(answer: (call: number) => Promise<void>) {
  const calls: { readonly before: number; readonly now: number }[] = []
  const warnings: unknown[] = []
  const upkeep = startInferenceUpkeep({
    inferences: { prune: (times) => answer(calls.push(times)) },
    now: () => NOW_MS,
    log: { warn: (...line: readonly unknown[]) => void warnings.push(line) },
    intervalMs: 5,
  })
  return { calls, warnings, upkeep }
}

it('the upkeep removes what is older than the age, also after a failure, and not after its stop', async () => {
  const { calls, warnings, upkeep } = start(async (call) => {
    if (call === 1) throw new Error('away')
  })
  expect(calls).toEqual([])
  await vi.advanceTimersByTimeAsync(10)
  await upkeep.stop()
  const now = Math.floor(NOW_MS / 1000)
  const asked = { before: now - INFERENCE_AGE_MAX_SECONDS, now }
  expect([calls, warnings.length]).toEqual([[asked, asked], 1])
  await vi.advanceTimersByTimeAsync(50)
  expect([calls.length, vi.getTimerCount()]).toEqual([2, 0])
})

it('the upkeep runs one removal at a time, and waits for it when it stops', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const { calls, upkeep } = start(() => promise)
  await vi.advanceTimersByTimeAsync(50)
  let isStopped = false
  const stopped = upkeep.stop().then(() => {
    isStopped = true
  })
  await vi.advanceTimersByTimeAsync(50)
  expect([calls.length, isStopped]).toEqual([1, false])
  resolve()
  await stopped
})
