import type { Logger } from '../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'

type Running = {
  /** Never rejects. */
  readonly ended: Promise<void>
  stop(): Promise<void>
}

type Keeper<Life> = {
  readonly first: Life
  /** Null between the end of one process and the start of the next. */
  current(): Life | null
  /** Ends the process, and does not start it again. */
  stop(): Promise<void>
}

/** After a run of this length, the pauses before restarts are short again. */
const STEADY_LIFE_MS = 60_000

/**
 * Starts a process again each time it ends. `start` gets the ended process, null the first time.
 * Rejects with the error of the first start.
 */
export async function keepRunning<Life extends Running>(
  plan: {
    readonly name: string
    readonly backOff: BackOffBounds
    readonly start: (last: Life | null) => Promise<Life>
  },
  log: Pick<Logger, 'error'>,
): Promise<Keeper<Life>> {
  const first = await plan.start(null)
  const stopping = new AbortController()
  const { signal } = stopping
  let last = first
  let current: Life | null = first

  async function keep(): Promise<void> {
    for (let failures = 1; ; failures++) {
      const startedAt = performance.now()
      // `stop` may have been called while the process was starting.
      if (signal.aborted) await current?.stop()
      await current?.ended
      current = null
      if (signal.aborted) return
      if (performance.now() - startedAt > STEADY_LIFE_MS) failures = 1
      const pauseMs = backOffMs(failures, plan.backOff, { jitter: 'none' })
      log.error({ process: plan.name, pause_ms: pauseMs }, 'process ended, starting it again')
      await pause(pauseMs, signal)
      if (signal.aborted) return
      current = await plan.start(last).catch((error: unknown) => {
        log.error({ process: plan.name, err: error }, 'process could not be started again')
        return null
      })
      last = current ?? last
    }
  }

  const keeping = keep()
  return {
    first,
    current: () => current,
    stop: async () => {
      stopping.abort()
      await current?.stop()
      await keeping
    },
  }
}
