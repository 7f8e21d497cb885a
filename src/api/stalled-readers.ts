import type { Socket } from 'node:net'

/**
 * A connection is cut if its reader takes no byte of an answer for this time. After a large step,
 * or at the start of a large answer, a reader gets up to five times as long.
 */
export const STALL_TIMEOUT_MS = 30_000

/** A reader counts as stalled after this number of checks in a row without progress. */
export const STALL_CHECKS = 6

/**
 * The system takes bytes in steps of up to a third of its own buffer. A reader of 1 KiB/s needs one
 * check for this part of a step. So a reader that has taken a step gets more checks for the next.
 */
const STEP_BYTES = 5 * 1024
const STEP_CHECKS_MAX = 24

/**
 * Returns a check that cuts connections whose bytes wait without progress. Time is counted in
 * checks, because a process that was suspended must not cut its readers. One check serves all
 * connections, so that a call needs no timer of its own.
 */
export function createStallCheck(): (sockets: Iterable<Socket>) => void {
  const readers = new WeakMap<Socket, { readonly takenBytes: number; checksLeft: number }>()
  return (sockets) => {
    for (const socket of sockets) {
      const takenBytes = takenBytesOf(socket)
      const reader = readers.get(socket)
      if (takenBytes === null) readers.delete(socket)
      else if (reader?.takenBytes === takenBytes) {
        if (--reader.checksLeft <= 0) socket.destroy()
      } else {
        const step = takenBytes - (reader?.takenBytes ?? 0)
        const more = Math.min(Math.ceil(step / STEP_BYTES), STEP_CHECKS_MAX)
        readers.set(socket, { takenBytes, checksLeft: STALL_CHECKS + more })
      }
    }
  }
}

/**
 * Returns how many bytes the system has taken from this process. Null if no byte waits. Public
 * counters of Node.js count a whole write only, which may be an answer of many megabytes. Its own
 * socket timeout uses the same property, but anything that the reader sends restarts that timeout.
 */
function takenBytesOf(socket: Socket): number | null {
  const { _handle: handle } = socket as unknown as { readonly _handle: StreamHandle | null }
  if (handle === null || socket.writableLength === 0) return null
  return handle.bytesWritten - handle.writeQueueSize
}

/** `bytesWritten` includes the bytes of `writeQueueSize`, which wait. */
type StreamHandle = { readonly bytesWritten: number; readonly writeQueueSize: number }
