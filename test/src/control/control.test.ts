import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ControlError, connectToGateway } from '../../../src/control/client.ts'
import { CONTROL_FILE, type KeyOperations } from '../../../src/control/operations.ts'
import { CONTROL_BODY_BYTES_MAX } from '../../../src/control/server.ts'
import { openControl } from '../../../src/start/control.ts'
import { makePrivateFolder, type PrivateFolder } from '../../../src/start/private-folder.ts'

const described = { id: 'abc', account: 'Ann', name: 'laptop', created_at: 1, revoked_at: null }
const asked: unknown[] = []
const keys: KeyOperations = {
  create: async (names) => {
    asked.push(names)
    return { ...described, key: 'afd_abc_secret' }
  },
  list: async () => [described],
  revoke: async (id) => {
    asked.push(id)
    if (id === 'break') throw new Error('the database is on fire')
    return id === 'abc' ? 'revoked' : 'unknown'
  },
}

let dataFolder = ''
let folder: PrivateFolder
let close: () => Promise<void>

beforeEach(async () => {
  asked.length = 0
  dataFolder = await mkdtemp(join(tmpdir(), 'affidavit-control-'))
  folder = await makePrivateFolder()
  close = await openControl(keys, { dataFolder, privateFolder: folder.path })
})
afterEach(async () => {
  await close()
  await folder.remove()
  await rm(dataFolder, { recursive: true })
})

describe('the control socket', () => {
  it('does key operations for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    expect(await gateway?.create({ account: 'Ann', name: 'laptop' })).toEqual({
      ...described,
      key: 'afd_abc_secret',
    })
    expect(await gateway?.list()).toEqual([described])
    expect(await gateway?.revoke('abc')).toBe('revoked')
    expect(await gateway?.revoke('a/../b c')).toBe('unknown')
    expect(asked).toEqual([{ account: 'Ann', name: 'laptop' }, 'abc', 'a/../b c'])
    await gateway?.close()
  })

  it('says that something failed, and not what', async () => {
    const gateway = await connectToGateway(dataFolder)
    await expect(gateway?.revoke('break')).rejects.toThrow(ControlError)
    await expect(gateway?.revoke('break')).rejects.not.toThrow('on fire')
    await gateway?.close()
  })

  it.each([
    ['an unknown resource', 'GET', '/secrets', '', 404],
    ['an unknown method', 'PATCH', '/keys', '', 405],
    ['no JSON', 'POST', '/keys', '{', 400],
    ['a missing name', 'POST', '/keys', '{"account":"Ann"}', 400],
    ['a name with control characters', 'POST', '/keys', '{"account":"Ann","name":"a\\u001b"}', 400],
    ['a name too long', 'POST', '/keys', JSON.stringify({ account: 'Ann', name: 'x'.repeat(101) }), 400],
    ['a body too long', 'POST', '/keys', ' '.repeat(CONTROL_BODY_BYTES_MAX + 1), 400],
  ])('refuses %s', async (_, method, path, body, status) => {
    const { socket } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    const call = request({ socketPath: socket, method, path })
    call.end(body)
    const [response] = await once(call, 'response')
    response.resume()
    expect(response.statusCode).toBe(status)
    expect(asked).toEqual([])
  })

  it('lies where only this user can reach it', async () => {
    const file = join(dataFolder, CONTROL_FILE)
    const { socket } = JSON.parse(await readFile(file, 'utf8'))
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect((await stat(dirname(socket))).mode & 0o777).toBe(0o700)
  })

  it('is gone after a close', async () => {
    await close()
    expect(await connectToGateway(dataFolder)).toBeNull()
    close = async () => undefined
  })
})

describe('what a killed gateway left behind', () => {
  it('counts as no gateway', async () => {
    await writeFile(
      join(dataFolder, CONTROL_FILE),
      JSON.stringify({ socket: '/nowhere/control.sock', pid: 1 }),
    )
    expect(await connectToGateway(dataFolder)).toBeNull()
    await writeFile(join(dataFolder, CONTROL_FILE), 'half a fi')
    expect(await connectToGateway(dataFolder)).toBeNull()
  })

  it('is removed by the next one, but no other folder ever is', async () => {
    const stale = await makePrivateFolder()
    const precious = await mkdtemp(join(dataFolder, 'affidavit-'))
    for (const left of [stale.path, precious]) {
      await close()
      const address = { socket: join(left, 'control.sock'), pid: 1 }
      await writeFile(join(dataFolder, CONTROL_FILE), JSON.stringify(address))
      close = await openControl(keys, { dataFolder, privateFolder: folder.path })
    }
    await expect(stat(stale.path)).rejects.toThrow('ENOENT')
    expect((await stat(precious)).isDirectory()).toBe(true)
  })
})
