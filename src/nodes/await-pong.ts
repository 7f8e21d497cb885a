import type { WebSocket } from 'ws'

/** Pings an open socket, and resolves with whether it answers in time. */
export function awaitPong(socket: WebSocket, timeoutMs: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const onPong = () => resolve(true)
  const onClose = () => resolve(false)
  const timer = setTimeout(onClose, timeoutMs)
  socket.on('pong', onPong).on('close', onClose)
  socket.ping()
  return promise.finally(() => {
    clearTimeout(timer)
    socket.off('pong', onPong).off('close', onClose)
  })
}
