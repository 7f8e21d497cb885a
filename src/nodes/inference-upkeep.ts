import type { Logger } from '../observability/logger.ts'
import { DAY_SECONDS, type InferencesStore } from './inferences-store.ts'

/** How long single inferences are kept; counts of them are kept for good. */
export const INFERENCE_AGE_MAX_SECONDS = 30 * DAY_SECONDS

/** Between two prunings: each removes about as much as came in this time. */
export const PRUNE_INTERVAL_MS = 60 * 60 * 1000

/**
 * Removes old inferences, once an interval; the first time after one interval. A failure is logged, and the next time
 * removes what was left. `now` is Unix milliseconds. `stop` waits for a removal that is under way.
 */
export function startInferenceUpkeep(options: {
  readonly inferences: Pick<InferencesStore, 'prune'>
  readonly now: () => number
  readonly log: Pick<Logger, 'warn'>
  readonly intervalMs?: number
}): { stop(): Promise<void> } {
  const { inferences, now, log, intervalMs = PRUNE_INTERVAL_MS } = options
  let pruning: Promise<void> | null = null

  async function prune(): Promise<void> {
    const unixSeconds = Math.floor(now() / 1000)
    try {
      await inferences.prune({ before: unixSeconds - INFERENCE_AGE_MAX_SECONDS, now: unixSeconds })
    } catch (error) {
      log.warn({ err: error }, 'old inferences not removed')
    }
  }

  const timer = setInterval(() => {
    pruning ??= prune().finally(() => {
      pruning = null
    })
  }, intervalMs)

  return {
    async stop() {
      clearInterval(timer)
      await pruning
    },
  }
}
