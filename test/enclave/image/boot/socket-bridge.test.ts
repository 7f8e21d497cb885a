import { once } from 'node:events'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openSocketBridge, type SocketBridge } from '#enclave/image/boot/boot-enclave.ts'

let folder: string
let path: string
let server: Server
let bridge: SocketBridge
let serve: (socket: Socket) => void

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-bridge-'))
  path = join(folder, 'b.sock')
  server = createServer({ allowHalfOpen: true }, (socket) => serve(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  bridge = await openSocketBridge({ path, port: (server.address() as AddressInfo).port })
})
afterEach(async () => {
  await bridge.close()
  await new Promise((resolve) => server.close(resolve))
  await rm(folder, { recursive: true })
})

describe('openSocketBridge', () => {
  it("the bridge's socket is open to this user alone", async () => {
    expect((await stat(path)).mode & 0o777).toBe(0o600)
  })

  it('the socket bridge carries bytes both ways, and the end of either side alone', async () => {
    serve = async (socket) => {
      const asked = await buffer(socket)
      socket.end(asked.reverse())
    }
    const sent = Buffer.alloc(300_000, 'abc')
    const caller = connect({ path, allowHalfOpen: true })
    caller.end(sent)
    expect(Buffer.compare(await buffer(caller), Buffer.from(sent).reverse())).toBe(0)
  })

  it('the socket bridge ends running connections when it is closed', async () => {
    serve = (socket) => {
      socket.on('error', () => undefined).resume()
      socket.once('end', () => socket.end())
    }
    const caller = connect(path)
    await once(caller, 'connect')
    const ended = once(caller, 'close')
    await bridge.close()
    await ended
    await expect(once(connect(path), 'connect')).rejects.toMatchObject({ code: 'ENOENT' })
  })
})
