/** Waits for `ms`, or until the signal is aborted. Never rejects. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms <= 0 || signal.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })
}

/** The reason for aborts. An abort without a reason would create an exception with a stack. */
const WOKEN = 'woken'

/** Pause before the next round: `ms`. After `wake`, the pause is only `leastMs` (default 0). */
export type LoopPause = { readonly ms: number; readonly leastMs?: number }

type Loop = {
  /** Starts the first round. Does nothing if the loop was already started. */
  start(): void
  /** Shortens the current pause, or during a round the next pause, to `leastMs`. */
  wake(): void
  /** Aborts the signal of the rounds. Resolves when no round is running. */
  stop(): Promise<void>
  isRunning(): boolean
}

/**
 * Returns a loop that is not started yet. `round` returns the pause before the next round, in
 * milliseconds. `round` must handle its errors: if it throws, the loop ends with an unhandled
 * rejection.
 */
export function createLoop(round: (signal: AbortSignal) => Promise<number | LoopPause>): Loop {
  const stopping = new AbortController()
  const { signal } = stopping
  let waking = new AbortController()
  let running: Promise<void> | null = null

  async function run(): Promise<void> {
    while (!signal.aborted) {
      waking = new AbortController()
      const result = await round(signal)
      const { ms, leastMs = 0 } = typeof result === 'number' ? { ms: result } : result
      await pause(leastMs, signal)
      if (!signal.aborted) await pause(ms - Math.max(0, leastMs), waking.signal)
    }
  }

  return {
    start() {
      running ??= run()
    },
    wake: () => waking.abort(WOKEN),
    async stop() {
      stopping.abort()
      waking.abort(WOKEN)
      await running
    },
    isRunning: () => running !== null && !signal.aborted,
  }
}
