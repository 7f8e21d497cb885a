import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ControlError, connectToGateway } from '../../../src/control/client.ts'
import { CONTROL_FILE, type Operations } from '../../../src/control/operations.ts'
import { CONTROL_BODY_BYTES_MAX } from '../../../src/control/server.ts'
import { openControl } from '../../../src/start/control.ts'
import { makePrivateFolder, type PrivateFolder } from '../../../src/start/private-folder.ts'

const described = {
  id: 'abc',
  account: 'Ann',
  name: 'laptop',
  scopes: ['inference'] as const,
  created_at: 1,
  expires_at: 5,
  revoked_at: null,
  last_used_at: null,
}
const order = { account: 'Ann', name: 'laptop', scopes: ['inference'] as const, expires_at: 5 }
const account = { id: 'a1', name: 'Ann', tier: null, created_at: 1 }
const asked: unknown[] = []
const operations: Operations = {
  keys: {
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
  },
  accounts: {
    open: async (name) => {
      asked.push(name)
      return { ...account, name }
    },
    list: async () => [account],
    setTier: async (given) => {
      asked.push(given)
      return given.tier === 'gold' ? 'set' : 'unknown_tier'
    },
  },
}

const orderText = (over: object) => JSON.stringify({ ...order, ...over })

let dataFolder = ''
let folder: PrivateFolder
let close: () => Promise<void>

beforeEach(async () => {
  asked.length = 0
  dataFolder = await mkdtemp(join(tmpdir(), 'affidavit-control-'))
  folder = await makePrivateFolder()
  close = await openControl(operations, { dataFolder, privateFolder: folder.path })
})
afterEach(async () => {
  await close()
  await folder.remove()
  await rm(dataFolder, { recursive: true })
})

describe('the control socket', () => {
  it('does key operations for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    expect(await gateway?.keys.create(order)).toEqual({ ...described, key: 'afd_abc_secret' })
    expect(await gateway?.keys.list()).toEqual([described])
    expect(await gateway?.keys.revoke('abc')).toBe('revoked')
    expect(await gateway?.keys.revoke('a/../b c')).toBe('unknown')
    expect(asked).toEqual([order, 'abc', 'a/../b c'])
    await gateway?.close()
  })

  it('does account operations for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    expect(await gateway?.accounts.open('Bea')).toEqual({ ...account, name: 'Bea' })
    expect(await gateway?.accounts.list()).toEqual([account])
    expect(await gateway?.accounts.setTier({ name: 'Ann', tier: 'gold' })).toBe('set')
    expect(await gateway?.accounts.setTier({ name: 'Ann', tier: null })).toBe('unknown_tier')
    expect(asked).toEqual(['Bea', { name: 'Ann', tier: 'gold' }, { name: 'Ann', tier: null }])
    await gateway?.close()
  })

  it('says that something failed, and not what', async () => {
    const gateway = await connectToGateway(dataFolder)
    await expect(gateway?.keys.revoke('break')).rejects.toThrow(ControlError)
    await expect(gateway?.keys.revoke('break')).rejects.not.toThrow('on fire')
    await gateway?.close()
  })

  it.each([
    ['an unknown resource', 'GET', '/secrets', '', 404],
    ['an unknown method', 'PATCH', '/keys', '', 405],
    ['no JSON', 'POST', '/keys', '{', 400],
    ['a missing name', 'POST', '/keys', '{"account":"Ann"}', 400],
    ['a name with control characters', 'POST', '/keys', orderText({ name: 'a\u001b' }), 400],
    ['a name too long', 'POST', '/keys', orderText({ name: 'x'.repeat(101) }), 400],
    ['no scopes', 'POST', '/keys', orderText({ scopes: [] }), 400],
    ['a scope that there is not', 'POST', '/keys', orderText({ scopes: ['root'] }), 400],
    ['an expiry that is no time', 'POST', '/keys', orderText({ expires_at: 1.5 }), 400],
    ['an account without a name', 'POST', '/accounts', '{"tier":"gold"}', 400],
    ['a tier that is no text', 'PUT', '/accounts', '{"name":"Ann","tier":7}', 400],
    ['null', 'POST', '/accounts', 'null', 400],
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
      close = await openControl(operations, { dataFolder, privateFolder: folder.path })
    }
    await expect(stat(stale.path)).rejects.toThrow('ENOENT')
    expect((await stat(precious)).isDirectory()).toBe(true)
  })
})
