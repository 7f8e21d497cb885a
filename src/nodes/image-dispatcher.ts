import { FormatError } from '../../attestation/errors.ts'
import { DispatchError } from './dispatcher.ts'
import type { House } from './house.ts'
import { type ImageRequest, imageFrameBytes } from './image-frames.ts'
import type { ImageRun } from './image-run.ts'
import type { NodeLimits } from './limits.ts'
import { measurementAfterDrawing } from './measurements.ts'
import { checkCall, tryNodes } from './try-nodes.ts'
import type { HeldLane } from './wait-queue.ts'

/** One call for images, for whichever node is best. */
export type ImageNodeCall<Images> = {
  readonly model: string
  readonly request: ImageRequest
  /** Who calls, for the record of what was served. */
  readonly accountId: string | null
  /** Aborted when the caller leaves, in any phase. */
  readonly signal: AbortSignal
  /**
   * Judges one node's answer, and gives what is made of it. Throws FormatError for what is none: then that node is held to have failed,
   * and another one is asked. What else it throws ends the call.
   */
  readonly read: (images: readonly string[]) => Promise<Images>
}

/** Gives calls for images to DIFFUSION nodes. */
export type ImageDispatcher = {
  /**
   * Gives the call to the node that will probably be done first. A node that fails, refuses, is silent for `imageMs` or answers
   * nonsense is replaced, at most `retriesMax` times. Rejects with DispatchError, the signal's reason, or what `read` threw.
   */
  dispatch<Images>(call: ImageNodeCall<Images>): Promise<Images>
  /** Whether a node that is RUNNING has the model now. */
  serves(model: string): boolean
  /** Whether a node of the model is or was connected to this process. */
  isKnown(model: string): boolean
  /** Models that can be served now, with the number of nodes that are RUNNING, in the order of their names. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
  /** Whether a request fits the frames that nodes take. */
  fits(request: { readonly prompt: string; readonly imageBytes: number }): boolean
}

/** The dispatcher over a house of nodes. `isStopping`: takes no calls any more. */
export function createImageDispatcher(
  house: Pick<House, 'images' | 'inferenceLog'>,
  {
    limits,
    now,
    stoppingError,
  }: {
    readonly limits: NodeLimits
    readonly now: () => number
    /** Null while calls are taken. */
    readonly stoppingError: () => DispatchError | null
  },
): ImageDispatcher {
  const { index, queue } = house.images
  return {
    async dispatch(call) {
      const stopping = stoppingError()
      if (stopping !== null) throw stopping
      checkCall(call, index)
      const imageBytes = ((call.request.image?.length ?? 0) * 3) / 4
      if (imageFrameBytes({ ...call.request, imageBytes }) > limits.requestBytesMax)
        throw new DispatchError(
          'request_too_large',
          `Nodes take requests of at most ${limits.requestBytesMax} bytes`,
        )
      return tryNodes(call, { index, queue, limits, now }, (held) => attempt(call, held, { house, now }))
    },
    serves: index.isServed,
    isKnown: index.isKnown,
    models: index.models,
    fits: (request) => imageFrameBytes(request) <= limits.requestBytesMax,
  }
}

type Parts = { readonly house: Pick<House, 'inferenceLog'>; readonly now: () => number }

/** One attempt: what was made of the answer, or what went wrong with this node. */
async function attempt<Images>(
  { request, signal, accountId, read }: ImageNodeCall<Images>,
  { lane, slot }: HeldLane,
  { house, now }: Parts,
): Promise<Images | DispatchError> {
  const { node } = lane
  if (node.desk === null) throw new TypeError('expected a lane of a DIFFUSION node')
  const run = node.desk.start({ lane, slot, request, signal, isProbe: false })
  if (run === null) throw new DispatchError('no_nodes', 'Too many images are being made')
  const outcome = await outcomeOf(run, read)
  if (outcome instanceof DispatchError) return outcome
  node.standing.succeeded()
  const nowMs = now()
  lane.measurement = measurementAfterDrawing(lane.measurement, (nowMs - run.startedAtMs) / request.n)
  house.inferenceLog.note({
    ...{ id: run.id, nodeId: node.nodeId, accountId, model: lane.model },
    // Images have no tokens, and their answer no first one.
    ...{ promptTokens: 0, completionTokens: 0, totalTokens: 0, timeToFirstTokenMs: null },
    createdAt: Math.floor(nowMs / 1000),
  })
  return outcome.images
}

async function outcomeOf<Images>(
  run: ImageRun,
  read: (images: readonly string[]) => Promise<Images>,
): Promise<{ readonly images: Images } | DispatchError> {
  const { signal, lane } = run.options
  try {
    return { images: await read(await run.answer) }
  } catch (error) {
    if (signal.aborted) throw signal.reason
    if (error instanceof DispatchError) return error
    if (!(error instanceof FormatError)) throw error
    lane.node.standing.failed()
    return new DispatchError('node_failed', `The node sent what are no images: ${error.message}`)
  }
}
