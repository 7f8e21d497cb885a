import { chmod } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'

/** A Unix socket that leads to a TCP port. */
export type SocketBridge = {
  /** Ends it and all connections over it. */
  close(): Promise<void>
}

/**
 * Opens a Unix socket at `path` whose connections go to `port` on 127.0.0.1, byte by byte. Only this user may open it (0600);
 * its folder must be private too, since there is a moment before the mode is set. The port itself is open to every user of
 * this machine: for development alone. Rejects when the socket cannot be made.
 */
export async function openSocketBridge({
  path,
  port,
}: {
  readonly path: string
  readonly port: number
}): Promise<SocketBridge> {
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.pipe(other)
      // The other side learns of a broken connection as of one that was closed.
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, resolve)
  })
  await chmod(path, 0o600)
  return {
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
