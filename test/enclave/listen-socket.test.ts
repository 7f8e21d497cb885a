import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { listenOnSocket } from '#enclave/listen-socket.ts'
import { folderOfTest } from '../support/folders.ts'

let folder: string
let path: string
const servers: ReturnType<typeof createServer>[] = []

beforeEach(() => {
  folder = folderOfTest()
  path = join(folder, 's')
})

afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

function makeServer() {
  const server = createServer()
  servers.push(server)
  return server
}

describe('listenOnSocket', () => {
  it('listenOnSocket makes a socket that its user alone may open, and leaves the umask as it was', async () => {
    const umask = process.umask()
    await listenOnSocket(makeServer(), path)
    expect(statSync(path).isSocket()).toBe(true)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(process.umask()).toBe(umask)
  })

  it("listenOnSocket makes a socket that its folder's group may open too, when it is told to", async () => {
    chmodSync(folder, 0o2710)
    await listenOnSocket(makeServer(), path, 0o660)
    expect(statSync(path).mode & 0o777).toBe(0o660)
    expect(statSync(path).gid).toBe(statSync(folder).gid)
  })

  it('listenOnSocket replaces the socket of a process that was killed', async () => {
    const script = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => console.log('up'))`
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(existsSync(path)).toBe(true)
    const server = makeServer()
    await listenOnSocket(server, path)
    expect(server.listening).toBe(true)
  })

  it('listenOnSocket leaves a socket alone when a process answers on it', async () => {
    await listenOnSocket(makeServer(), path)
    await expect(listenOnSocket(makeServer(), path)).rejects.toMatchObject({
      name: 'SocketError',
      code: 'in_use',
    })
    expect(existsSync(path)).toBe(true)
  })

  it('listenOnSocket leaves a file that is not a socket alone', async () => {
    writeFileSync(path, 'precious')
    await expect(listenOnSocket(makeServer(), path)).rejects.toMatchObject({ code: 'not_a_socket' })
    expect(statSync(path).size).toBe(8)
  })
})
