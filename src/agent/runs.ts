import type { Logger } from '../observability/logger.ts'
import type { Backend } from './backend.ts'
import { type RunAbort, type RunOutcome, runChat } from './chat-run.ts'
import { encodeFailure, type GatewayFrame } from './frames.ts'
import { encodeImageFailure } from './image-frames.ts'
import { runImages } from './image-run.ts'
import type { NodeType } from './node-type.ts'

/** Runs at once on one connection: more than a gateway gives a node, and what a faulty one cannot exceed. */
export const RUNS_MAX = 64

/** Told of each run, and by what it gives how it ended. May not throw. */
export type RunWatcher = (run: {
  readonly model: string
  readonly traceparent: string | null
}) => (outcome: RunOutcome) => void

type RunFrame = Extract<GatewayFrame, { kind: 'chat' | 'image' }>

/** The requests of one connection that are being answered. */
export type Runs = {
  /** Answers a chat or image frame; one whose id is running already is ignored. Nothing of it throws. */
  start(frame: RunFrame): void
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
  nodeType,
  models,
  backend,
  send,
  onIdle,
  watchRun,
  log,
  runsMax = RUNS_MAX,
}: {
  readonly nodeType: NodeType
  /** Those of a node that makes images have one, which its frames do not name. */
  readonly models: readonly string[]
  readonly backend: Pick<Backend, 'streamChat' | 'makeImages'>
  readonly send: (frame: string) => void | Promise<void>
  readonly onIdle: () => void
  readonly watchRun?: RunWatcher | undefined
  readonly log: Logger
  readonly runsMax?: number
}): Runs {
  const running = new Map<string, AbortController>()
  let isClosed = false

  function refusalOf(
    { kind }: RunFrame,
    model: string,
  ): { readonly statusCode: number; readonly message: string } | null {
    if (isClosed) return { statusCode: 500, message: 'the node is stopping' }
    if ((kind === 'image') !== (nodeType === 'DIFFUSION'))
      return { statusCode: 400, message: 'the node is of another type' }
    if (!models.includes(model)) return { statusCode: 404, message: 'the node does not serve this model' }
    if (running.size >= runsMax)
      return { statusCode: 429, message: `the node runs ${runsMax} requests already` }
    return null
  }

  return {
    start: (frame) => {
      const { id } = frame
      if (running.has(id)) return
      const { model = '', traceparent = null } = frame.kind === 'chat' ? frame : { model: models[0] }
      const refusal = refusalOf(frame, model)
      if (refusal !== null) {
        const isChat = frame.kind === 'chat'
        void send(isChat ? encodeFailure(id, refusal) : encodeImageFailure(id, refusal))
        return
      }
      const controller = new AbortController()
      running.set(id, controller)
      const { signal } = controller
      const onEnd = watchRun?.({ model, traceparent })
      const ran =
        frame.kind === 'chat'
          ? runChat({ id, model, body: frame.request }, { backend, signal, send })
          : runImages({ id, model, request: frame.request }, { backend, signal, send })
      void ran.then((outcome) => {
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
