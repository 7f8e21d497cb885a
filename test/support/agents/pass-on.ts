import { once } from 'node:events'
import {
  connect,
  createServer,
  type ListenOptions,
  type NetConnectOpts,
  type Server,
} from 'node:net'

/** Listens, and passes the bytes of every connection on to another address. */
export async function passOn(from: ListenOptions, to: NetConnectOpts): Promise<Server> {
  const server = createServer((inner) => {
    const outer = connect(to)
    inner.pipe(outer).pipe(inner)
    inner.on('error', () => outer.destroy())
    outer.on('error', () => inner.destroy())
  })
  server.listen(from)
  await once(server, 'listening')
  return server
}
