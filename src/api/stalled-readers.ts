import type { Socket } from 'node:net'

/** A connection is cut if its reader takes no byte of an answer for this time. */
export const STALL_TIMEOUT_MS = 30_000

/** A reader counts as stalled after this number of checks in a row without progress. */
export const STALL_CHECKS = 6

/**
 * Returns a check that cuts connections whose bytes have waited since STALL_CHECKS checks. Time is
 * counted in checks, because a process that was suspended must not cut its readers. One check for
 * all connections, so that a call needs no timer of its own.
 */
export function createStallCheck(): (sockets: Iterable<Socket>) => void {
  const stalls = new WeakMap<Socket, { readonly takenBytes: number; checks: number }>()
  return (sockets) => {
    for (const socket of sockets) {
      const takenBytes = takenBytesOf(socket)
      const stall = stalls.get(socket)
      if (takenBytes === null) stalls.delete(socket)
      else if (stall?.takenBytes !== takenBytes) stalls.set(socket, { takenBytes, checks: 0 })
      else if (++stall.checks >= STALL_CHECKS) socket.destroy()
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
