import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { actRoutes } from '#src/accounts/acts.ts'
import type { AdminLog } from '#src/accounts/admin-log-store.ts'
import { createControlServer, openControlAt } from '#src/api/control-server.ts'
import { enclaveActs } from '#src/enclaves/enclave-acts.ts'
import type { EndpointDescription } from '#src/enclaves/enclave-pool.ts'
import { createLogger } from '#src/observability/logger.ts'
import { folderOfTest } from '../../../support/folders.ts'
import { runCommandWith } from '../../../support/run-command.ts'
import { until } from '../../../support/until.ts'

const URL = 'unix:/run/a.sock'

/** The enclaves of one gateway process, by socket. */
type Pool = Map<string, EndpointDescription>

let folder: string
let pools: readonly Pool[]
/** How often the processes were asked for their lists. */
let asked = 0
let closers: (() => Promise<void>)[]

beforeEach(async () => {
  folder = folderOfTest()
  const opened = [0, 1].map(openProcess)
  pools = opened.map(({ pool }) => pool)
  closers = await Promise.all(opened.map(({ listening }) => listening))
})
afterEach(() => Promise.all(closers.map((close) => close())))

function describeEnclave(socketPath: string, state: EndpointDescription['state']) {
  return { socketPath, state, notary: '0xaa', calls: 2, committed: 7, fault: '' }
}

/** Serves one process's control socket, as GATEWAY_PROCESSES names it. */
function openProcess(place: number) {
  const pool: Pool = new Map([['/run/a.sock', describeEnclave('/run/a.sock', 'usable')]])
  const enclaves = {
    list: () => {
      asked += 1
      return [...pool.values()]
    },
    add: async (path: string) => {
      pool.set(path, describeEnclave(path, 'usable'))
      return 'done' as const
    },
    drain: (path: string) => {
      if (!pool.has(path)) return 'unknown' as const
      pool.set(path, describeEnclave(path, 'draining'))
      return 'done' as const
    },
    remove: async (path: string) => (pool.delete(path) ? ('done' as const) : ('unknown' as const)),
  }
  const adminLog = { append: async () => undefined } as unknown as AdminLog
  const server = createControlServer({
    processes: 2,
    routes: actRoutes(enclaveActs, { enclaves, adminLog, database: {} as never }),
    now: Date.now,
    makeRequestId: () => 'req_1',
    log: createLogger({ level: 'silent', destination: { write: () => undefined } }),
  })
  return { pool, listening: openControlAt(server, join(folder, `control.sock.${place}`)) }
}

function enclaves(...words: readonly string[]) {
  return runCommandWith({ CONTROL_SOCKET: join(folder, 'control.sock') }, 'enclaves', ...words)
}

const statesOf = (socketPath: string) => pools.map((pool) => pool.get(socketPath)?.state)

describe('affidavit enclaves, at a gateway of several processes', () => {
  it('a drain ends only when the enclave is drained at every process', async () => {
    let isDone = false
    const run = enclaves('drain', URL).finally(() => {
      isDone = true
    })
    await until('both drain', () => statesOf('/run/a.sock').every((state) => state === 'draining'))
    pools[0]?.set('/run/a.sock', describeEnclave('/run/a.sock', 'drained'))
    const before = asked
    await until('it asks both again', () => asked >= before + 4)
    expect(isDone).toBe(false)
    pools[1]?.set('/run/a.sock', describeEnclave('/run/a.sock', 'drained'))
    expect(await run).toMatchObject({ code: 0, stderr: expect.stringContaining('is drained') })
  })

  it('an enclave is added, listed once, and removed at every process', async () => {
    expect(await enclaves('add', 'unix:/run/b.sock')).toMatchObject({ code: 0 })
    expect(statesOf('/run/b.sock')).toEqual(['usable', 'usable'])
    pools[0]?.delete('/run/b.sock')
    const { stdout } = await enclaves('list', '--json')
    expect((await enclaves('list')).stdout).toContain('absent, usable')
    expect(JSON.parse(stdout)).toMatchObject([
      { url: URL, state: 'usable', notary: '0xaa', calls: 4, committed: 7 },
      { url: 'unix:/run/b.sock', state: 'absent, usable', calls: 2 },
    ])
    expect(await enclaves('remove', 'unix:/run/b.sock')).toMatchObject({ code: 0 })
    expect(statesOf('/run/b.sock')).toEqual([undefined, undefined])
  })

  it('a drain is refused while a process does not answer', async () => {
    await closers.shift()?.()
    expect(await enclaves('drain', URL)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`no gateway answers at ${join(folder, 'control.sock.0')}`),
    })
    expect(statesOf('/run/a.sock')).toEqual(['usable', 'usable'])
  })

  it('a drain is refused while the last process has no socket yet', async () => {
    await closers.pop()?.()
    expect(await enclaves('drain', URL)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`no gateway answers at ${join(folder, 'control.sock.1')}`),
    })
    expect(statesOf('/run/a.sock')).toEqual(['usable', 'usable'])
  })

  it('the socket that a process of an earlier start left is not waited for', async () => {
    await writeFile(join(folder, 'control.sock.3'), '')
    expect(await enclaves('list')).toMatchObject({ code: 0 })
  })
})
