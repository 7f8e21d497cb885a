import type { Logger } from '../logger.ts'
import type { Backend } from './backend.ts'
import { type RunAbort, type RunOutcome, runChat } from './chat-run.ts'
import { encodeFailure, type GatewayFrame } from './frames.ts'

/** Runs at once on one connection: more than a gateway gives a node, and what a faulty one cannot exceed. */
export const RUNS_MAX = 64

/** Told of each run, and by what it gives how it ended. May not throw. */
export type RunWatcher = (run: {
  readonly model: string
  readonly traceparent: string | null
}) => (outcome: RunOutcome) => void

/** The chat requests of one connection that are being answered. */
export type Runs = {
  /** Answers a chat frame; one whose id is running already is ignored. Nothing of it throws. */
  start(frame: Extract<GatewayFrame, { kind: 'chat' }>): void
  /** Ends a run whose caller left; unknown ids are ignored. */
  cancel(id: string): void
  /** Ends all runs. */
  abort(reason: RunAbort): void
  /** From now on new ones are refused. */
  close(): void
  readonly count: number
}

/** Gives the runs of one connection; `onIdle` is called whenever the last one ended. */
export function createRuns({
  models,
  backend,
  send,
  onIdle,
  watchRun,
  log,
  runsMax = RUNS_MAX,
}: {
  readonly models: readonly string[]
  readonly backend: Pick<Backend, 'streamChat'>
  readonly send: (frame: string) => void | Promise<void>
  readonly onIdle: () => void
  readonly watchRun?: RunWatcher | undefined
  readonly log: Logger
  readonly runsMax?: number
}): Runs {
  const running = new Map<string, AbortController>()
  let isClosed = false

  function refusalOf(model: string): { readonly statusCode: number; readonly message: string } | null {
    if (isClosed) return { statusCode: 500, message: 'the node is stopping' }
    if (!models.includes(model)) return { statusCode: 404, message: 'the node does not serve this model' }
    if (running.size >= runsMax)
      return { statusCode: 429, message: `the node runs ${runsMax} requests already` }
    return null
  }

  return {
    start: ({ id, model, request, traceparent }) => {
      if (running.has(id)) return
      const refusal = refusalOf(model)
      if (refusal !== null) {
        void send(encodeFailure(id, refusal))
        return
      }
      const controller = new AbortController()
      running.set(id, controller)
      const { signal } = controller
      const onEnd = watchRun?.({ model, traceparent })
      void runChat({ id, model, body: request }, { backend, signal, send }).then((outcome) => {
        running.delete(id)
        onEnd?.(outcome)
        log.debug({ request_id: id, model, ...outcome }, 'run ended')
        if (running.size === 0) onIdle()
      })
    },
    cancel: (id) => running.get(id)?.abort('cancelled'),
    abort: (reason) => {
      for (const controller of running.values()) controller.abort(reason)
    },
    close: () => {
      isClosed = true
    },
    get count() {
      return running.size
    },
  }
}
