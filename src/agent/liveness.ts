import type { WebSocket } from 'ws'

/** Watches whether the other end of a WebSocket is still there. */
export type Liveness = {
  /** To be called when the connection opens. */
  start(): void
  stop(): void
  /** Time of the newest ping that was answered, milliseconds; null before the first. */
  roundTripMs(): number | null
}

/**
 * Pings the other end every `pingMs` and ends a connection over which nothing came in between: its other end may be gone
 * without a word. `now` gives milliseconds of a clock that only goes forward.
 */
export function watchLiveness(socket: WebSocket, pingMs: number, now: () => number): Liveness {
  let timer: NodeJS.Timeout | undefined
  let wasHeard = true
  let pingedAt = 0
  let roundTripMs: number | null = null
  const hear = () => {
    wasHeard = true
  }
  socket.on('message', hear)
  socket.on('ping', hear)
  socket.on('pong', () => {
    roundTripMs = now() - pingedAt
    hear()
  })
  const ping = () => {
    pingedAt = now()
    socket.ping()
  }
  return {
    start: () => {
      ping()
      timer = setInterval(() => {
        if (!wasHeard) socket.terminate()
        else if (socket.readyState === socket.OPEN) {
          wasHeard = false
          ping()
        }
      }, pingMs)
    },
    stop: () => clearInterval(timer),
    roundTripMs: () => roundTripMs,
  }
}
