import type { Logger } from '../../observability/logger.ts'

type Sweep = {
  /** 1, or 0 after `stop`. */
  timers(): number
  stop(): void
}

/**
 * Calls each job at the job's interval, a multiple of `tickMs`. One timer serves all nodes, because
 * a few timers per node would add up to tens of thousands. An error in a job is logged, and the job
 * is called again. The timer does not keep the process alive.
 */
export function startSweep({
  tickMs,
  jobs,
  log,
}: {
  readonly tickMs: number
  readonly jobs: readonly { readonly everyMs: number; readonly run: () => void }[]
  readonly log: Logger
}): Sweep {
  let ticks = 0
  const timer = setInterval(() => {
    ticks++
    for (const { everyMs, run } of jobs) {
      if (ticks % Math.max(1, Math.round(everyMs / tickMs)) !== 0) continue
      try {
        run()
      } catch (error) {
        log.error({ err: error }, 'sweep of the nodes failed')
      }
    }
  }, tickMs)
  timer.unref()
  let timers = 1
  return {
    timers: () => timers,
    stop() {
      clearInterval(timer)
      timers = 0
    },
  }
}
