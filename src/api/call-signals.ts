import type { ServerResponse } from 'node:http'
import { CallerLeftError } from './errors.ts'

/** Call `done` in a `finally`. */
type CallSignal = {
  readonly abort: AbortController
  /** Aborted when the process stops, not when the caller leaves. */
  readonly stop: AbortController
  done(): void
}

/** Ends a call when its caller leaves, and all calls when the process stops. */
export type CallSignals = {
  /**
   * `abort` is aborted with CallerLeftError if the connection closes before the response is
   * complete.
   */
  open(response: ServerResponse): CallSignal
  abortAll(reason: Error): void
  /** Resolves when no call is running. */
  idle(): Promise<void>
}

/**
 * A signal watches the response instead of the request, because the request ends with its body. A
 * caller that closes only its sending side counts as gone: the server cannot see the difference.
 */
export function createCallSignals(): CallSignals {
  const running = new Set<AbortController>()
  const waiting: (() => void)[] = []
  return {
    open(response) {
      const abort = new AbortController()
      // An aborted signal cannot report a second reason, so the stop has its own.
      const stop = new AbortController()
      const onClose = () => {
        if (!response.writableFinished) abort.abort(new CallerLeftError())
      }
      running.add(abort).add(stop)
      if (response.destroyed) onClose()
      else response.once('close', onClose)
      return {
        abort,
        stop,
        done() {
          running.delete(abort)
          running.delete(stop)
          response.off('close', onClose)
          if (running.size === 0) for (const wake of waiting.splice(0)) wake()
        },
      }
    },
    abortAll(reason) {
      for (const abort of running) abort.abort(reason)
    },
    idle: () => new Promise((resolve) => (running.size === 0 ? resolve() : waiting.push(resolve))),
  }
}
