import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { link, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer, request } from 'node:http'
import { createServer as createSocket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { z } from 'zod'
import { accountActs } from '#src/accounts/account-acts.ts'
import { ACT_BODY_BYTES_MAX, actRoutes } from '#src/accounts/acts.ts'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { keyActs } from '#src/accounts/key-acts.ts'
import { CONTROL_FILE } from '#src/api/control-address.ts'
import { createControlServer, openControl, openControlAt } from '#src/api/control-server.ts'
import { defineRoute } from '#src/api/route.ts'
import { ActRefused } from '#src/cli/faults.ts'
import { connectToGateway } from '#src/cli/operations.ts'
import { enclaveActs } from '#src/enclaves/enclave-acts.ts'
import type { EndpointDescription } from '#src/enclaves/enclave-pool.ts'
import { createLogger } from '#src/observability/logger.ts'
import { makePrivateFolder, type PrivateFolder } from '#src/storage/data-folder.ts'
import { useDatabase } from '../../support/databases.ts'

const order = { account: 'Ann', name: 'laptop', scopes: ['inference' as const], expires_at: 5 }
const asked: unknown[] = []
const endpoint: EndpointDescription = {
  socketPath: '/run/a.sock',
  state: 'usable',
  notary: null,
  calls: 2,
  committed: 7,
  fault: '',
}
const enclaves = {
  list: () => [endpoint],
  add: async (path: string) => {
    asked.push(['add', path])
    return 'done' as const
  },
  drain: (path: string) => {
    if (path === '/run/break.sock') throw new Error('the enclave is on fire')
    return path === endpoint.socketPath ? ('done' as const) : ('unknown' as const)
  },
  remove: async () => 'in_use' as const,
}

const NEWEST = { before: null, kind: null, since: null, until: null, limit: 1 }

const database = await useDatabase()
const logLines: string[] = []
const log = createLogger({ level: 'debug', destination: { write: (line) => logLines.push(line) } })

function createServer() {
  const place = { database, adminLog: createAdminLog(database), tiers: () => ['gold'], enclaves }
  return createControlServer({
    processes: 1,
    routes: [
      ...actRoutes(accountActs, place),
      ...actRoutes(keyActs, place),
      ...actRoutes(enclaveActs, place),
      ofCustomers,
    ],
    now: Date.now,
    makeRequestId: () => 'req_1',
    log,
  })
}

/** Every key may call it on the public port. */
const ofCustomers = defineRoute({
  method: 'GET',
  path: '/v1/models',
  tag: 'Models',
  summary: 'Models',
  scope: 'any',
  reply: { name: 'Models', schema: z.object({}) },
  handler: async () => ({}),
})

const orderText = (over: object) => JSON.stringify({ ...order, ...over })

let dataFolder = ''
let folder: PrivateFolder
let close: () => Promise<void>

beforeEach(async () => {
  asked.length = 0
  dataFolder = await mkdtemp(join(tmpdir(), 'affidavit-control-'))
  folder = await makePrivateFolder()
  close = await openControl(createServer(), { dataFolder, privateFolder: folder.path })
})
afterEach(async () => {
  await close()
  await folder.remove()
  await rm(dataFolder, { recursive: true })
})

it('the control socket does key operations for another process', async () => {
  const gateway = await connectToGateway(dataFolder)
  const made = await gateway?.keys.create(order)
  const { id = '', key, is_account_new: _, ...described } = made ?? {}
  const { account, ...others } = order
  expect(described).toMatchObject({ account_name: account, ...others, revoked_at: null })
  expect(key).toContain(`afd_${id}_`)
  const file = join(dataFolder, CONTROL_FILE)
  const { socket } = JSON.parse(await readFile(file, 'utf8'))
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  expect((await stat(dirname(socket))).mode & 0o777).toBe(0o700)
  expect((await gateway?.keys.list({}))?.keys).toEqual([{ id, ...described }])
  expect(await gateway?.keys.revoke({ id })).toEqual({ revoked: [id] })
  expect(await gateway?.keys.revoke({ id })).toEqual({ revoked: [] })
  await expect(gateway?.keys.revoke({ id: 'a/../b c&d' })).rejects.toMatchObject({
    code: 'not_found',
  })
  const who = process.getuid === undefined ? 'operator' : `operator (uid ${process.getuid()})`
  expect(await createAdminLog(database).list(NEWEST)).toMatchObject([
    { kind: 'key.revoke', target: 'a/../b c&d', who, account_id: null, from: 'control socket' },
  ])
  await gateway?.close()
})

it('the control socket does operations on enclaves for another process', async () => {
  const gateway = await connectToGateway(dataFolder)
  const { socketPath: _, ...shown } = endpoint
  const done = { outcome: 'done' }
  expect(await gateway?.enclaves.list({})).toEqual({
    enclaves: [{ url: 'unix:/run/a.sock', ...shown }],
  })
  expect(await gateway?.enclaves.add({ url: 'unix:///run/b.sock' })).toEqual(done)
  await expect(gateway?.enclaves.add({ url: '/run/b.sock' })).rejects.toMatchObject({
    code: 'validation_failed',
  })
  expect(await gateway?.enclaves.drain({ url: 'unix:/run/a.sock' })).toEqual(done)
  await expect(gateway?.enclaves.drain({ url: 'unix:/run/b.sock' })).rejects.toMatchObject({
    code: 'not_found',
  })
  await expect(gateway?.enclaves.remove({ url: 'unix:/run/a.sock' })).rejects.toMatchObject({
    code: 'enclave_in_use',
  })
  expect(asked).toEqual([['add', '/run/b.sock']])
  await gateway?.close()
})

it('the control socket lies where the operator wants it, private, and replaces a dead one there', async () => {
  const path = join(dataFolder, 'control.sock')
  const closeFirst = await openControlAt(createServer(), path)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  const gateway = await connectToGateway('/nowhere', path)
  expect(await gateway?.enclaves.list({})).toMatchObject({ enclaves: [{ calls: 2 }] })
  await gateway?.close()
  await expect(openControlAt(createServer(), path)).rejects.toThrow(
    `CONTROL_SOCKET ${path} is in use`,
  )
  await closeFirst()
  // As a killed process leaves it.
  const stale = createSocket().listen(path)
  await once(stale, 'listening')
  await link(path, `${path}.kept`)
  await new Promise((resolve) => stale.close(resolve))
  await rename(`${path}.kept`, path)
  await (await openControlAt(createServer(), path))()
  await writeFile(path, 'a file')
  await expect(openControlAt(createServer(), path)).rejects.toThrow('is in use')
  await expect(openControlAt(createServer(), join(path, 'x'))).rejects.toThrow(
    'the gateway cannot listen on',
  )
})

it('the control socket of one process of several is private, whatever the umask', async () => {
  const path = join(dataFolder, 'control.sock.0')
  const script = `
      import cluster from 'node:cluster'
      import { statSync } from 'node:fs'
      import { createServer } from 'node:http'
      import { openControlAt } from '${join(import.meta.dirname, '../../../src/api/control-server.ts')}'
      process.umask(0o002)
      if (cluster.isPrimary) {
        cluster.fork().once('message', () => {
          process.stdout.write((statSync('${path}').mode & 0o777).toString(8))
          process.exit(0)
        })
      } else {
        await openControlAt(createServer(), '${path}')
        process.send('ready')
      }`
  const file = join(dataFolder, 'supervisor.mjs')
  await writeFile(file, script)
  expect((await promisify(execFile)(process.execPath, [file])).stdout).toBe('600')
})

it('the command line says that a gateway of another version answers', async () => {
  const path = join(dataFolder, 'other.sock')
  const other = createHttpServer((_, response) => {
    response.writeHead(404).end('{"message":"unknown resource"}')
  }).listen(path)
  await once(other, 'listening')
  const gateway = await connectToGateway('/nowhere', path)
  await expect(gateway?.enclaves.list({})).rejects.toThrow('another version')
  await gateway?.close()
  await new Promise((resolve) => other.close(resolve))
})

it('the control socket says that something failed, and not what', async () => {
  const gateway = await connectToGateway(dataFolder)
  const failing = gateway?.enclaves.drain({ url: 'unix:/run/break.sock' })
  await expect(failing).rejects.toThrow(ActRefused)
  await expect(failing).rejects.not.toThrow('on fire')
  expect(logLines.join('')).toContain('on fire')
  await gateway?.close()
})

it.each([
  ['an unknown resource', 'GET', '/v1/admin/secrets', '', 404],
  ['a route of customers', 'GET', '/v1/models', '', 404],
  ['an unknown method', 'PATCH', '/v1/admin/keys', '', 405],
  ['no JSON', 'POST', '/v1/admin/keys', '{', 422],
  ['a missing name', 'POST', '/v1/admin/keys', '{"account":"Ann"}', 422],
  ['a name with control characters', 'POST', '/v1/admin/keys', orderText({ name: 'a\u001b' }), 422],
  ['a name too long', 'POST', '/v1/admin/keys', orderText({ name: 'x'.repeat(101) }), 422],
  ['no scopes', 'POST', '/v1/admin/keys', orderText({ scopes: [] }), 422],
  ['a scope that there is not', 'POST', '/v1/admin/keys', orderText({ scopes: ['root'] }), 422],
  ['an expiry that is no time', 'POST', '/v1/admin/keys', orderText({ expires_at: 1.5 }), 422],
  ['an account without a name', 'POST', '/v1/admin/accounts', '{"tier":"gold"}', 422],
  ['a tier that is no text', 'PUT', '/v1/admin/accounts', '{"name":"Ann","tier":7}', 422],
  ['an enclave without a url', 'PUT', '/v1/admin/enclaves', '{}', 422],
  ['an unknown method of enclaves', 'PATCH', '/v1/admin/enclaves', '', 405],
  ['null', 'POST', '/v1/admin/accounts', 'null', 422],
  ['a body too long', 'POST', '/v1/admin/keys', ' '.repeat(ACT_BODY_BYTES_MAX + 1), 413],
])('the control socket refuses %s', async (_, method, path, body, status) => {
  const { socket } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
  const before = await createAdminLog(database).list(NEWEST)
  const headers = { 'content-type': 'application/json' }
  const call = request({ socketPath: socket, method, path, headers })
  call.end(body)
  const [response] = await once(call, 'response')
  response.resume()
  expect(response.statusCode).toBe(status)
  expect(await createAdminLog(database).list(NEWEST)).toEqual(before)
})

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
    close = await openControl(createServer(), { dataFolder, privateFolder: folder.path })
  }
  await expect(stat(stale.path)).rejects.toThrow('ENOENT')
  expect((await stat(precious)).isDirectory()).toBe(true)
})
