import type { ConnectionHost } from './connection-host.ts'
import { cancelFrame } from './control-frames.ts'
import type { DispatchError } from './dispatcher.ts'
import { createEndedRuns } from './ended-runs.ts'
import { lostError } from './fault-error.ts'
import { type FrameMeter, meterFrames, type PacketSource } from './frame-meter.ts'
import type { NodeFrame } from './frames.ts'
import { answerBytesOf } from './image-budget.ts'
import { decodeImageFrame, type ImageFrame, type ImageRequest, imageFrame } from './image-frames.ts'
import { ImageRun, type ImageRunHooks, type ImageRunOptions } from './image-run.ts'
import type { NodeConnection } from './node-connection.ts'
import { mayBeRequestsFault } from './run-results.ts'

/** What it takes to ask for images. The slot is the run's from then on. */
export type ImageStart = Pick<ImageRunOptions, 'lane' | 'slot' | 'signal' | 'isProbe'> & {
  readonly request: ImageRequest
}

/** Where one DIFFUSION node's image runs are: a part of its connection. */
export type ImageDesk = {
  /** Bounds what comes in on the connection under the WebSocket. Once, before the first frame. */
  watch(socket: PacketSource): void
  /** Asks the node. Null, and the slot is given back, when too many answers are under way to keep another. */
  start(start: ImageStart): ImageRun | null
  /** Decodes a text frame that has become whole. */
  decode(bytes: Buffer): NodeFrame | ImageFrame
  /** Takes an answer. False when nobody asked for it. */
  receive(frame: ImageFrame): boolean
  /** Ends its runs at once. */
  fail(error: DispatchError): void
  /** Whether a caller waits for it. */
  isAnswering(): boolean
  /** Runs that are not over. */
  size(): number
}

/** Runs that were given up, whose answer may still come. */
const ENDED_RUNS_MAX = 64

/**
 * The desk of a connection. A large frame is let in only while an answer is awaited for which memory was set aside, so that what
 * all nodes together can make this process keep is the image budget, and one small frame each.
 */
export function createImageDesk(
  node: NodeConnection,
  host: ConnectionHost,
  /** Ends the connection for what it sent. */
  expel: (reason: string) => void,
): ImageDesk {
  const { limits, now, makeId, images } = host
  const runs = new Map<string, ImageRun>()
  const ended = createEndedRuns(ENDED_RUNS_MAX)
  let reservedBytes = 0
  let meter: FrameMeter | null = null

  const hooks: ImageRunHooks = {
    onFailed(run, error) {
      const { code } = error
      // Probes are judged by who asked.
      if (run.options.isProbe) return
      if (mayBeRequestsFault(error)) node.standing.refused()
      else if (code === 'node_failed' || code === 'first_token_timeout') node.standing.failed()
    },
    onDraining(run) {
      if (node.isConnected() && node.accepted.features.has('cancel'))
        node.post(cancelFrame(node.nodeId, run.id))
    },
    onAbandoned(run) {
      ended.add(run.id)
      // Nothing at all for a caller who left: only now it is known that nothing came later either.
      if (run.hasLeft) node.standing.failed()
    },
    onClosed(run) {
      runs.delete(run.id)
      images.runs.delete(run)
      reservedBytes -= run.options.reservation.bytes
      meter?.check()
    },
  }

  return {
    watch(socket) {
      meter = meterFrames(socket, {
        bytesMax: () => limits.frameBytesMax + reservedBytes,
        onExceeded: () => expel('Frame is larger than what was asked for'),
      })
    },
    start({ request, ...start }) {
      const reservation = images.budget.reserve(answerBytesOf(request, limits.imageFrameBytesMax))
      if (reservation === null) {
        start.slot.release()
        return null
      }
      const run = new ImageRun({ ...start, id: makeId(), reservation, limits, now, hooks })
      runs.set(run.id, run)
      images.runs.add(run)
      reservedBytes += reservation.bytes
      node.post(imageFrame(run.id, request))
      if (!node.isConnected()) run.fail(lostError())
      return run
    },
    decode(bytes) {
      meter?.frameEnded()
      return decodeImageFrame(bytes, limits.frameBytesMax)
    },
    receive(frame) {
      const run = runs.get(frame.requestId)
      run?.receive(frame)
      return run !== undefined || ended.take(frame.requestId)
    },
    fail(error) {
      for (const run of [...runs.values()]) run.fail(error)
    },
    isAnswering: () => [...runs.values()].some((run) => run.isWaiting() && !run.options.isProbe),
    size: () => runs.size,
  }
}
