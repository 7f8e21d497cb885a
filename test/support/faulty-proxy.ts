import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A proxy of bytes before one port, whose connections a test can cut and freeze. */
export type FaultyProxy = {
  /** `http://host:port`. */
  readonly url: string
  /** Connections that stand, in the order they were made. */
  connections(): readonly ProxiedConnection[]
  stop(): Promise<void>
}

/** One connection through the proxy. */
export type ProxiedConnection = {
  /** Breaks it on both sides, without a word. */
  cut(): void
  /** Passes nothing on, in neither direction, and does not say so; until `thaw`. */
  freeze(): void
  thaw(): void
}

/** Starts a proxy before a loopback port. */
export async function startFaultyProxy(port: number): Promise<FaultyProxy> {
  const connections = new Set<ProxiedConnection>()
  const server = createServer((near) => {
    const far = connect({ port, host: '127.0.0.1' })
    const connection = {
      cut: () => {
        near.destroy()
        far.destroy()
      },
      freeze: () => {
        near.pause()
        far.pause()
      },
      thaw: () => {
        near.resume()
        far.resume()
      },
    }
    connections.add(connection)
    pass(near, far)
    pass(far, near)
    near.once('close', () => {
      connections.delete(connection)
      far.destroy()
    })
    far.once('close', () => near.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => [...connections],
    stop: async () => {
      for (const connection of connections) connection.cut()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function pass(from: Socket, to: Socket): void {
  from.setNoDelay(true)
  from.on('data', (bytes) => void to.write(bytes))
  from.on('end', () => void to.end())
  // What broke is told by `close`.
  from.on('error', () => {})
}
