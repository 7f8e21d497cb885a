import type { Socket } from 'node:net'
import type { WebSocket } from 'ws'

/** Bytes that may wait for a gateway that reads slowly, before its runs wait for it. */
export const WAITING_BYTES_MAX = 1024 * 1024

/** Sends frames over one WebSocket. */
export type Sender = {
  /** Sends a frame; gives a promise when it should be waited for before the next. To a closed socket nothing is sent. */
  send(frame: string): void | Promise<void>
  /** Tells the TCP socket below, once it is known: frames of the same tick then go out in one write. */
  attach(socket: Socket): void
  /** Whether the gateway reads more slowly than frames come. */
  isBehind(): boolean
}

/** Gives the sender of a WebSocket. */
export function createSender(socket: WebSocket): Sender {
  let stream: Socket | null = null
  let isCorked = false

  /** A packet of the backend holds many chunks, and each frame alone would be a system call. */
  function gather(): void {
    if (stream === null || isCorked) return
    const corked = stream
    isCorked = true
    corked.cork()
    process.nextTick(() => {
      isCorked = false
      corked.uncork()
    })
  }

  const isBehind = () => socket.bufferedAmount > WAITING_BYTES_MAX
  return {
    send: (frame) => {
      if (socket.readyState !== socket.OPEN) return
      gather()
      if (!isBehind()) {
        socket.send(frame, ignore)
        return
      }
      return new Promise((resolve) => socket.send(frame, () => resolve()))
    },
    attach: (socketBelow) => {
      stream = socketBelow
    },
    isBehind,
  }
}

/** A frame that a closing socket did not take: 'close' tells of it. */
function ignore(): void {}
