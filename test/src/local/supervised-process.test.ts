import { writeFile } from 'node:fs/promises'
import { getCompileCacheDir } from 'node:module'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type ProcessPlan,
  type SupervisedProcess,
  superviseProcess,
} from '#src/local/supervised-process.ts'
import type { Logger } from '#src/observability/logger.ts'
import { StartFailure } from '#src/runtime/starting.ts'
import { folderOfTest } from '../../support/folders.ts'
import { isAlive } from '../../support/is-alive.ts'

type Ready = { readonly pid: number; readonly reported: string }
type Line = {
  readonly level: string
  readonly members: Readonly<Record<string, unknown>>
  readonly message: string
}

let folder = ''
let lines: Line[] = []
const running: SupervisedProcess<Ready>[] = []
const write = (level: string) => (members: Readonly<Record<string, unknown>>, message: string) => {
  lines.push({ level, members, message })
}
const log: Logger = {
  debug: write('debug'),
  info: write('info'),
  warn: write('warn'),
  error: write('error'),
}

beforeEach(async () => {
  folder = folderOfTest()
  lines = []
})
afterEach(() => Promise.all(running.splice(0).map((supervised) => supervised.stop())))

const READY =
  "console.log(JSON.stringify({ pid: process.pid, reported: process.env.GIVEN ?? '' }));"
const LIVES = "setInterval(() => {}, 1000); process.on('disconnect', () => process.exit(0));"

async function supervise(
  source: string,
  more: Partial<ProcessPlan<Ready>> = {},
): Promise<SupervisedProcess<Ready>> {
  const file = join(folder, 'child.ts')
  await writeFile(file, source)
  const supervised = await superviseProcess<Ready>(
    {
      name: 'child',
      file,
      environmentOf: (last) => ({ GIVEN: last === null ? '' : `after ${last.pid}` }),
      parseReady: (notice) =>
        typeof notice === 'string' && notice.startsWith('{') ? JSON.parse(notice) : null,
      describeFault: (line) => line,
      startTimeoutMs: 5_000,
      stopTimeoutMs: 1_000,
      ...more,
    },
    log,
  )
  running.push(supervised)
  return supervised
}

describe('superviseProcess', () => {
  it('superviseProcess gives what the process said when it was ready, and ends it', async () => {
    const supervised = await supervise(READY + LIVES)
    expect(supervised.ready.pid).toBe(supervised.pid())
    await supervised.stop()
    expect(isAlive(supervised.ready.pid)).toBe(false)
    expect(supervised.pid()).toBeNull()
  })

  it('superviseProcess gives the process only the variables of the plan', async () => {
    const source =
      'console.log(JSON.stringify({ pid: process.pid, reported: Object.keys(process.env).join() }));'
    const { ready } = await supervise(source + LIVES)
    // Node's compile cache is passed on where this process has one.
    const cache = getCompileCacheDir() === undefined ? [] : ['NODE_COMPILE_CACHE']
    expect(ready.reported).toBe(['GIVEN', ...cache].join())
  })

  it('superviseProcess starts a process that was killed again, telling it what it said before', async () => {
    const supervised = await supervise(`console.error(process.env.GIVEN); ${READY} ${LIVES}`)
    const first = supervised.ready.pid
    process.kill(first, 'SIGKILL')
    await expect.poll(() => supervised.pid()).not.toBe(first)
    await expect
      .poll(() => lines.some(({ members }) => members.line === `after ${first}`))
      .toBe(true)
    expect(
      lines.some(
        ({ level, message }) => level === 'error' && message.includes('starting it again'),
      ),
    ).toBe(true)
  })

  it('superviseProcess rejects with what the process said when it ends before it is ready', async () => {
    const starting = supervise("console.error('no good'); process.exit(3)")
    await expect(starting).rejects.toThrow(StartFailure)
    await expect(starting).rejects.toThrow(/child ended while starting\n {2}- no good/)
  })

  it('superviseProcess rejects when the process is not ready in time, and ends it', async () => {
    const starting = supervise(`console.error(process.pid); ${LIVES}`, { startTimeoutMs: 500 })
    await expect(starting).rejects.toThrow('was not ready within 500 ms')
    const pid = Number(lines[0]?.members.line)
    await expect.poll(() => isAlive(pid)).toBe(false)
  })

  it('superviseProcess kills a process that does not stop when asked to', async () => {
    const stubborn = `process.on('SIGTERM', () => {}); ${READY} ${LIVES}`
    const supervised = await supervise(stubborn, { stopTimeoutMs: 200 })
    await supervised.stop()
    expect(isAlive(supervised.ready.pid)).toBe(false)
  })

  it('superviseProcess can be stopped while it waits to start the process again', async () => {
    const supervised = await supervise(`${READY} setTimeout(() => process.exit(1), 50);`)
    await expect
      .poll(() => lines.some(({ message }) => message.includes('starting it again')))
      .toBe(true)
    await supervised.stop()
    // The run reports a timer that is left after the file.
    expect(supervised.pid()).toBeNull()
  })
})
