import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A proxy of bytes before one port, whose connections a test can cut and freeze. */
export type FaultyProxy = {
  /** `http://host:port`. */
  readonly url: string
  readonly port: number
  /** Open connections, in the order in which they were made. */
  connections(): readonly ProxiedConnection[]
  /**
   * What happens to all connections from now on: `refuse` cuts open connections and takes no new
   * ones; `hang` passes no bytes on and stays silent, like a network that loses every packet.
   */
  behave(manner: 'pass' | 'refuse' | 'hang'): Promise<void>
  stop(): Promise<void>
}

/** One connection through the proxy. */
export type ProxiedConnection = {
  /** Breaks the connection on both sides, without a close. */
  cut(): void
  /** Silently passes no bytes on, in both directions; until `thaw`. */
  freeze(): void
  thaw(): void
}

/** Starts a proxy before a loopback port; `at` is the proxy's port, by default a free one. */
export async function startFaultyProxy(port: number, { at = 0 } = {}): Promise<FaultyProxy> {
  const connections = new Set<ProxiedConnection>()
  let isHanging = false
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
    if (isHanging) connection.freeze()
    near.once('close', () => {
      connections.delete(connection)
      far.destroy()
    })
    far.once('close', () => near.destroy())
  })
  const listen = async (place: number) => {
    server.listen(place, '127.0.0.1')
    await once(server, 'listening')
    return (server.address() as AddressInfo).port
  }
  const close = async () => {
    const closed = server.listening ? once(server, 'close') : null
    server.close()
    for (const connection of connections) connection.cut()
    await closed
  }
  const own = await listen(at)
  return {
    url: `http://127.0.0.1:${own}`,
    port: own,
    connections: () => [...connections],
    behave: async (manner) => {
      isHanging = manner === 'hang'
      if (manner === 'refuse') return close()
      if (!server.listening) await listen(own)
      for (const connection of connections)
        if (isHanging) connection.freeze()
        else connection.thaw()
    },
    stop: close,
  }
}

function pass(from: Socket, to: Socket): void {
  from.setNoDelay(true)
  from.on('data', (bytes) => void to.write(bytes))
  from.on('end', () => void to.end())
  // `close` reports that the socket broke.
  from.on('error', () => {})
}
