import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import {
  INFERENCE_AGE_MAX_SECONDS,
  startInferenceUpkeep,
} from '#src/nodes/registry/inference-log.ts'

const NOW_MS = 1_790_000_000_500

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

it('the upkeep removes what is older than the age, again and again, and not after its stop', async () => {
  const { calls, upkeep } = start(async () => undefined)
  await expect.poll(() => calls.length).toBeGreaterThan(1)
  await upkeep.stop()
  const count = calls.length
  const now = Math.floor(NOW_MS / 1000)
  expect(calls[0]).toEqual({ before: now - INFERENCE_AGE_MAX_SECONDS, now })
  await sleep(30)
  expect(calls).toHaveLength(count)
})

it('the upkeep tries again after a failure', async () => {
  const { calls, warnings, upkeep } = start(async (call) => {
    if (call === 1) throw new Error('away')
  })
  await expect.poll(() => calls.length).toBeGreaterThan(1)
  await upkeep.stop()
  expect(warnings).toHaveLength(1)
})

it('the upkeep runs one removal at a time, and waits for it when it stops', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const { calls, upkeep } = start(() => promise)
  await expect.poll(() => calls.length).toBe(1)
  await sleep(30)
  let isStopped = false
  const stopped = upkeep.stop().then(() => {
    isStopped = true
  })
  await sleep(10)
  expect([calls.length, isStopped]).toEqual([1, false])
  resolve()
  await stopped
})
