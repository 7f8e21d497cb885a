import type { ServerResponse } from 'node:http'
import { CallerLeftError } from './errors.ts'

/** What ends one call early. Belongs to the call; `done` in a `finally`. */
type CallSignal = { readonly abort: AbortController; done(): void }

/** The calls under way, to end each when its caller leaves, and all when the process stops. */
export type CallSignals = {
  /**
   * Signal of a call: aborted with CallerLeftError when the response's connection closes before its
   * end.
   */
  open(response: ServerResponse): CallSignal
  /** Ends all calls under way with `reason`. */
  abortAll(reason: Error): void
  /** Resolves when no call is under way. */
  idle(): Promise<void>
}

/**
 * Signals of calls. The response is watched and not the request, which is over when its body was
 * read. A caller that closes only the sending side of the connection has left too: a caller that is
 * gone looks just the same.
 */
export function createCallSignals(): CallSignals {
  const running = new Set<AbortController>()
  const waiting: (() => void)[] = []
  return {
    open(response) {
      const abort = new AbortController()
      const onClose = () => {
        if (!response.writableFinished) abort.abort(new CallerLeftError())
      }
      running.add(abort)
      if (response.destroyed) onClose()
      else response.once('close', onClose)
      return {
        abort,
        done() {
          running.delete(abort)
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
