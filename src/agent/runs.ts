import {
  type AskedImageRequest,
  encodeChunk,
  encodeDone,
  encodeFailure,
  encodeImageFailure,
  encodeImages,
  encodeWorking,
  FRAME_BYTES_MAX,
  type GatewayFrame,
  IMAGE_FRAME_BYTES_MAX,
} from '../nodes/protocol/frames.ts'
import type { NodeType } from '../nodes/protocol/hello.ts'
import { remoteMediaFault, remoteMediaOf } from '../nodes/protocol/remote-media.ts'
import type { Logger } from '../observability/logger.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'

/** Contains no part of the request or the answer. */
type RunOutcome =
  | { readonly kind: 'done' | RunAbort }
  | { readonly kind: 'failed'; readonly statusCode: number; readonly reason: string }

/** The caller left, the agent stops waiting, or the connection is lost. */
type RunAbort = 'cancelled' | 'stopped' | 'lost'

/** Only a faulty gateway sends more runs at the same time. */
const RUNS_MAX = 64

/** Starts to watch a run, and returns a function for the outcome. Neither function may throw. */
export type RunWatcher = (run: {
  readonly model: string
  readonly traceparent: string | null
}) => (outcome: RunOutcome) => void

type RunFrame = Extract<GatewayFrame, { readonly kind: 'chat' | 'image' }>

export type Runs = {
  /** Ignores a frame whose id is already running. Never throws. */
  start(frame: RunFrame): void
  /** Unknown ids are ignored. */
  cancel(id: string): void
  abort(reason: RunAbort): void
  /** From now on, new runs are refused. */
  close(): void
  readonly count: number
}

const FAULT_LOG_INTERVAL_MS = 60_000
/** The node's owner cannot remove these faults: a wrong request, or a limit of the backend. */
const NOT_OWNERS: ReadonlySet<number> = new Set([400, 409, 422, 429])

/** `onIdle` is called each time the last running request ends. */
export function createRuns({
  nodeType,
  models,
  fetchesMedia = false,
  backend,
  send,
  onIdle,
  watchRun,
  log,
  runsMax = RUNS_MAX,
}: {
  readonly nodeType: NodeType
  /** Image frames name no model, because a node for images has only one. */
  readonly models: readonly string[]
  /** True if the backend may receive URLs of images. Default false. */
  readonly fetchesMedia?: boolean | undefined
  readonly backend: Pick<Backend, 'streamChat' | 'streamDialect' | 'makeImages'>
  readonly send: (frame: string) => void | Promise<void>
  readonly onIdle: () => void
  readonly watchRun?: RunWatcher | undefined
  readonly log: Logger
  readonly runsMax?: number
}): Runs {
  const running = new Map<string, AbortController>()
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  let isClosed = false

  function refusalOf(
    frame: RunFrame,
    model: string,
  ): { readonly statusCode: number; readonly message: string } | null {
    if (isClosed) return { statusCode: 500, message: 'the node is stopping' }
    const { kind } = frame
    if ((kind === 'image') !== (nodeType === 'DIFFUSION'))
      return { statusCode: 400, message: 'the node is of another type' }
    if (!models.includes(model))
      return { statusCode: 404, message: 'the node does not serve this model' }
    if (running.size >= runsMax)
      return { statusCode: 429, message: `the node runs ${runsMax} requests already` }
    // Not every gateway refuses media URLs, and the backend would fetch them inside this network.
    const media = frame.kind === 'chat' ? remoteMediaOf(frame.request) : null
    if (media !== null && !(fetchesMedia && media.isWeb))
      return { statusCode: 400, message: remoteMediaFault(media) }
    return null
  }

  /** Logs a warning only if the node's owner can remove the fault. */
  function logOutcome(id: string, model: string, outcome: RunOutcome): void {
    const ended = { request_id: id, model, ...outcome }
    if (outcome.kind !== 'failed' || NOT_OWNERS.has(outcome.statusCode))
      log.debug(ended, 'run ended')
    else if (faults.isDue(`${model} ${outcome.reason}`)) log.warn(ended, 'the backend failed')
  }

  return {
    start: (frame) => {
      const { id } = frame
      if (running.has(id)) return
      const { model = '', traceparent = null } =
        frame.kind === 'chat' ? frame : { model: models[0] }
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
          ? runChat({ ...frame, model }, { backend, signal, send })
          : runImages({ id, model, request: frame.request }, { backend, signal, send })
      void ran.then((outcome) => {
        running.delete(id)
        onEnd?.(outcome)
        logOutcome(id, model, outcome)
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

/**
 * Sends frames of status 1 and a final frame: status 2, or status 3 with the backend's error. The
 * usage of a chat is in the last frame of status 1. A cancelled run also ends with status 2. `send`
 * resolves when more frames may be sent. Never rejects.
 */
async function runChat(
  frame: Extract<GatewayFrame, { readonly kind: 'chat' }>,
  {
    backend,
    signal,
    send,
  }: {
    readonly backend: Pick<Backend, 'streamChat' | 'streamDialect'>
    /** The signal's reason is a RunAbort. */
    readonly signal: AbortSignal
    readonly send: (frame: string) => void | Promise<void>
  },
): Promise<RunOutcome> {
  const { id, model, dialect } = frame
  const request = { ...frame.request, model }
  let sentAtMs = Date.now()
  // A long prompt takes minutes on a slow machine, and the gateway gives up on a silent node.
  const working = setInterval(() => {
    if (Date.now() - sentAtMs >= WORKING_MS && !signal.aborted) void send(encodeWorking(id))
  }, WORKING_MS)
  try {
    const answer =
      dialect === null
        ? backend.streamChat(request, signal)
        : backend.streamDialect(dialect, request, signal)
    for await (const chunks of answer)
      for (const { text } of chunks) {
        const frame = encodeChunk(id, text)
        if (isLonger(frame, FRAME_BYTES_MAX))
          throw new BackendError(`expected chunks that fit ${FRAME_BYTES_MAX} bytes`)
        sentAtMs = Date.now()
        const sent = send(frame)
        if (sent !== undefined) await sent
        signal.throwIfAborted()
      }
    await send(encodeDone(id))
    return { kind: 'done' }
  } catch (error) {
    if (signal.aborted) return endAborted(id, signal, send)
    const fault = error instanceof BackendError ? error : new BackendError('the node failed')
    await send(encodeFailure(id, fault))
    return { kind: 'failed', statusCode: fault.statusCode, reason: fault.reason }
  } finally {
    clearInterval(working)
  }
}

/** Time between two reports that a backend still works, milliseconds. */
const WORKING_MS = 10_000

async function endAborted(
  id: string,
  signal: AbortSignal,
  send: (frame: string) => void | Promise<void>,
): Promise<RunOutcome> {
  switch (signal.reason) {
    case 'cancelled':
      await send(encodeDone(id))
      return { kind: 'cancelled' }
    case 'stopped':
      await send(encodeFailure(id, { statusCode: 500, message: 'the node stopped' }))
      return { kind: 'stopped' }
    default:
      return { kind: 'lost' }
  }
}

/**
 * Sends one frame: the images or the error. A cancelled run ends with an error that the gateway
 * does not read. Never rejects.
 */
async function runImages(
  {
    id,
    model,
    request,
  }: { readonly id: string; readonly model: string; readonly request: AskedImageRequest },
  {
    backend,
    signal,
    send,
  }: {
    readonly backend: Pick<Backend, 'makeImages'>
    /** The signal's reason is a RunAbort. */
    readonly signal: AbortSignal
    readonly send: (frame: string) => void | Promise<void>
  },
): Promise<RunOutcome> {
  try {
    const frame = encodeImages(id, await backend.makeImages({ ...request, model }, signal))
    signal.throwIfAborted()
    // The whole frame is ASCII, so each character is one byte.
    if (frame.length > IMAGE_FRAME_BYTES_MAX)
      throw new BackendError(`expected images that fit ${IMAGE_FRAME_BYTES_MAX} bytes`)
    await send(frame)
    return { kind: 'done' }
  } catch (error) {
    if (signal.aborted) return endAbortedImages(id, signal, send)
    const fault = error instanceof BackendError ? error : new BackendError('the node failed')
    await send(encodeImageFailure(id, fault))
    return { kind: 'failed', statusCode: fault.statusCode, reason: fault.reason }
  }
}

async function endAbortedImages(
  id: string,
  signal: AbortSignal,
  send: (frame: string) => void | Promise<void>,
): Promise<RunOutcome> {
  const kind = signal.reason === 'cancelled' || signal.reason === 'stopped' ? signal.reason : 'lost'
  if (kind !== 'lost')
    await send(encodeImageFailure(id, { statusCode: 500, message: `the request was ${kind}` }))
  return { kind }
}

/** Counts bytes only if necessary. */
function isLonger(text: string, bytesMax: number): boolean {
  return text.length * 3 > bytesMax && Buffer.byteLength(text) > bytesMax
}
