import type { Logger } from '../observability/logger.ts'
import { type ControlRequest, encodeHealth, encodePong, parseControl } from './control-frames.ts'
import { decodeFrame, encodeFailure } from './frames.ts'
import type { Load } from './load.ts'
import type { Runs } from './runs.ts'
import type { Sender } from './sender.ts'

/**
 * Gives what answers the frames of one connection. The frames are the gateway's; none of them makes it throw, and what it
 * does not understand it ignores.
 */
export function createResponder({
  nodeId,
  runs,
  sender,
  readLoad,
  roundTripMs,
  onReconnect,
  log,
}: {
  readonly nodeId: string
  readonly runs: Runs
  readonly sender: Sender
  readonly readLoad: () => Promise<Load>
  /** The newest measurement, null before the first. */
  readonly roundTripMs: () => number | null
  readonly onReconnect: () => void
  readonly log: Logger
}): (text: string) => void {
  const { send } = sender
  let load: Promise<Load> | null = null

  function obey(control: ControlRequest): void {
    switch (control.kind) {
      case 'cancel':
        runs.cancel(control.requestId)
        break
      case 'reconnect':
        onReconnect()
        break
      case 'ping':
        // Who does not read the answers to what it asks gets no more of them.
        if (!sender.isBehind()) void send(encodePong(nodeId, control.nonce, roundTripMs()))
        break
      case 'health':
        void answerHealth(control.nonce)
        break
    }
  }

  /** Reading costs half a second of measuring and a process: however many ask, one at a time. */
  async function answerHealth(nonce: string): Promise<void> {
    load ??= readLoad().finally(() => {
      load = null
    })
    const reading = await load.catch(() => null)
    if (reading !== null && !sender.isBehind()) void send(encodeHealth(nodeId, nonce, reading))
  }

  return (text) => {
    const frame = decodeFrame(text)
    switch (frame.kind) {
      case 'chat':
      case 'image':
        runs.start(frame)
        break
      case 'bad_chat':
        void send(encodeFailure(frame.id, { statusCode: 400, message: frame.message }))
        break
      case 'control': {
        const control = parseControl(frame.protocol, frame.data, nodeId)
        if (control === null) log.debug({ size: text.length }, 'control frame not understood')
        else obey(control)
        break
      }
      case 'unknown':
        log.debug({ size: text.length }, 'frame not understood')
        break
    }
  }
}
