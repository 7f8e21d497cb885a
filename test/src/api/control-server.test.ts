import { once } from 'node:events'
import { link, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CONTROL_FILE, type ServedOperations } from '../../../src/api/control-operations.ts'
import {
  CONTROL_BODY_BYTES_MAX,
  openControl,
  openControlAt,
} from '../../../src/api/control-server.ts'
import { ControlError, connectToGateway } from '../../../src/cli/operations.ts'
import {
  createEnclaveOperations,
  type EndpointDescription,
} from '../../../src/enclaves/enclave-pool.ts'
import { makePrivateFolder, type PrivateFolder } from '../../../src/storage/data-folder.ts'

const described = {
  id: 'abc',
  account: 'Ann',
  name: 'laptop',
  scopes: ['inference'] as const,
  made_by: null,
  created_at: 1,
  expires_at: 5,
  revoked_at: null,
  last_used_at: null,
}
const order = { account: 'Ann', name: 'laptop', scopes: ['inference'] as const, expires_at: 5 }
const account = { id: 'a1', name: 'Ann', tier: null, created_at: 1, disabled_at: null }
const asked: unknown[] = []
const endpoint: EndpointDescription = {
  socketPath: '/run/a.sock',
  state: 'usable',
  notary: null,
  calls: 2,
  committed: 7,
  fault: '',
}
const operations: ServedOperations = {
  enclaves: createEnclaveOperations({
    list: () => [endpoint],
    add: async (path) => {
      asked.push(['add', path])
      return 'done'
    },
    drain: (path) => (path === endpoint.socketPath ? 'done' : 'unknown'),
    remove: async () => 'in_use',
  }),
  keys: {
    create: async (names) => {
      asked.push(names)
      return { ...described, key: 'afd_abc_secret', is_account_new: false }
    },
    list: async () => [described],
    revoke: async (id) => {
      asked.push(id)
      if (id === 'break') throw new Error('the database is on fire')
      return id === 'abc' ? [id] : 'unknown'
    },
  },
  accounts: {
    open: async (name) => {
      asked.push(name)
      return { ...account, name, is_new: true }
    },
    list: async () => [account],
    setTier: async (given) => {
      asked.push(given)
      return given.tier === 'gold' ? 'set' : 'unknown_tier'
    },
    setState: async () => 'set',
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
  close = await openControl(() => operations, { dataFolder, privateFolder: folder.path })
})
afterEach(async () => {
  await close()
  await folder.remove()
  await rm(dataFolder, { recursive: true })
})

describe('the control socket', () => {
  it('the control socket does key operations for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    expect(await gateway?.keys.create(order)).toEqual({
      ...described,
      key: 'afd_abc_secret',
      is_account_new: false,
    })
    expect(await gateway?.keys.list()).toEqual([described])
    expect(await gateway?.keys.revoke('abc')).toEqual(['abc'])
    expect(await gateway?.keys.revoke('a/../b c')).toBe('unknown')
    expect(asked).toEqual([order, 'abc', 'a/../b c'])
    await gateway?.close()
  })

  it('the control socket does account operations for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    expect(await gateway?.accounts.open('Bea')).toEqual({ ...account, name: 'Bea', is_new: true })
    expect(await gateway?.accounts.list()).toEqual([account])
    expect(await gateway?.accounts.setTier({ name: 'Ann', tier: 'gold' })).toBe('set')
    expect(await gateway?.accounts.setTier({ name: 'Ann', tier: null })).toBe('unknown_tier')
    expect(asked).toEqual(['Bea', { name: 'Ann', tier: 'gold' }, { name: 'Ann', tier: null }])
    await gateway?.close()
  })

  it('the control socket does operations on enclaves for another process', async () => {
    const gateway = await connectToGateway(dataFolder)
    const { socketPath: _, ...shown } = endpoint
    expect(await gateway?.enclaves.list()).toEqual([{ url: 'unix:/run/a.sock', ...shown }])
    expect(await gateway?.enclaves.add('unix:///run/b.sock')).toBe('done')
    expect(await gateway?.enclaves.add('/run/b.sock')).toBe('invalid')
    expect(await gateway?.enclaves.drain('unix:/run/a.sock')).toBe('done')
    expect(await gateway?.enclaves.drain('unix:/run/b.sock')).toBe('unknown')
    expect(await gateway?.enclaves.remove('unix:/run/a.sock')).toBe('in_use')
    expect(asked).toEqual([['add', '/run/b.sock']])
    await gateway?.close()
  })

  it('the control socket lies where the operator wants it, private, and replaces a dead one there', async () => {
    const path = join(dataFolder, 'control.sock')
    const closeFirst = await openControlAt(() => operations, path)
    expect((await stat(path)).mode & 0o777).toBe(0o600)
    const gateway = await connectToGateway('/nowhere', path)
    expect(await gateway?.keys.list()).toEqual([described])
    await gateway?.close()
    await expect(openControlAt(() => operations, path)).rejects.toThrow(
      `CONTROL_SOCKET ${path} is in use`,
    )
    await closeFirst()
    // As a killed process leaves it.
    const stale = createServer().listen(path)
    await once(stale, 'listening')
    await link(path, `${path}.kept`)
    await new Promise((resolve) => stale.close(resolve))
    await rename(`${path}.kept`, path)
    await (await openControlAt(() => operations, path))()
    await writeFile(path, 'a file')
    await expect(openControlAt(() => operations, path)).rejects.toThrow('is in use')
    await expect(openControlAt(() => operations, join(path, 'x'))).rejects.toThrow(
      'the gateway cannot listen on',
    )
  })

  it('the control socket says that something failed, and not what', async () => {
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
    ['an enclave without a url', 'PUT', '/enclaves', '{}', 400],
    ['an unknown method of enclaves', 'PATCH', '/enclaves', '', 405],
    ['null', 'POST', '/accounts', 'null', 400],
    ['a body too long', 'POST', '/keys', ' '.repeat(CONTROL_BODY_BYTES_MAX + 1), 400],
  ])('the control socket refuses %s', async (_, method, path, body, status) => {
    const { socket } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    const call = request({ socketPath: socket, method, path })
    call.end(body)
    const [response] = await once(call, 'response')
    response.resume()
    expect(response.statusCode).toBe(status)
    expect(asked).toEqual([])
  })

  it('the control socket lies where only this user can reach it', async () => {
    const file = join(dataFolder, CONTROL_FILE)
    const { socket } = JSON.parse(await readFile(file, 'utf8'))
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect((await stat(dirname(socket))).mode & 0o777).toBe(0o700)
  })

  it('the control socket is gone after it was closed', async () => {
    await close()
    expect(await connectToGateway(dataFolder)).toBeNull()
    close = async () => undefined
  })
})

describe('what a killed gateway left behind', () => {
  it('a control file that a killed gateway left behind counts as no gateway', async () => {
    await writeFile(
      join(dataFolder, CONTROL_FILE),
      JSON.stringify({ socket: '/nowhere/control.sock', pid: 1 }),
    )
    expect(await connectToGateway(dataFolder)).toBeNull()
    await writeFile(join(dataFolder, CONTROL_FILE), 'half a fi')
    expect(await connectToGateway(dataFolder)).toBeNull()
  })

  it('a folder that a killed gateway left behind is removed by the next one, and no other folder is', async () => {
    const stale = await makePrivateFolder()
    const precious = await mkdtemp(join(dataFolder, 'affidavit-'))
    for (const left of [stale.path, precious]) {
      await close()
      const address = { socket: join(left, 'control.sock'), pid: 1 }
      await writeFile(join(dataFolder, CONTROL_FILE), JSON.stringify(address))
      close = await openControl(() => operations, { dataFolder, privateFolder: folder.path })
    }
    await expect(stat(stale.path)).rejects.toThrow('ENOENT')
    expect((await stat(precious)).isDirectory()).toBe(true)
  })
})
