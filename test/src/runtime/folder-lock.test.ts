import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { DataFolderInUse, lockFolder } from '#src/runtime/folder-lock.ts'
import { folderOfTest } from '../../support/folders.ts'
import { needNo } from '../../support/needs.ts'

const LINUX = needNo(process.platform === 'linux' ? null : 'Linux')

describe('lockFolder', () => {
  let folder: string
  beforeEach(async () => {
    folder = folderOfTest()
  })

  const lockFile = (number = 1) => path.join(folder, `lock.${number}`)

  it('lockFolder keeps a second holder out until the first releases', async () => {
    const lock = await lockFolder(folder)
    await expect(lockFolder(folder)).rejects.toThrow(DataFolderInUse)
    await lock.release()
    const again = await lockFolder(folder)
    await expect(lockFolder(folder)).rejects.toThrow(DataFolderInUse)
    await again.release()
  })

  it('a refused lock names the process, the folder and DATA_DIR', async () => {
    const lock = await lockFolder(folder)
    await expect(lockFolder(folder)).rejects.toThrow(
      new RegExp(`process ${process.pid} .*${folder}.*DATA_DIR`),
    )
    await lock.release()
  })

  it('lockFolder lets exactly one of many contenders in', async () => {
    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => lockFolder(folder)))
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
  })

  it.each([1, 2, 3, 4, 5])(
    'lockFolder lets exactly one of many contenders take over a stale lock, try %i',
    async () => {
      await writeFile(lockFile(), await markOfKilledProcess())
      const outcomes = await Promise.allSettled(
        Array.from({ length: 20 }, () => lockFolder(folder)),
      )
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      expect(await readdir(folder)).toEqual(['lock.2'])
    },
  )

  it.runIf(LINUX.isMet)(
    LINUX.title('lockFolder takes over when the pid now belongs to another process'),
    async () => {
      await writeFile(lockFile(), JSON.stringify({ pid: process.pid, startedAt: 'another boot/1' }))
      const lock = await lockFolder(folder)
      await lock.release()
    },
  )

  it('lockFolder respects a living process whose start time is not known', async () => {
    await writeFile(lockFile(), JSON.stringify({ pid: process.ppid, startedAt: null }))
    await expect(lockFolder(folder)).rejects.toThrow(DataFolderInUse)
  })

  it.each(['', '{', 'null', '{"pid":-1,"startedAt":null}', '{"pid":"1","startedAt":null}'])(
    'lockFolder takes over a lock file that names no process: %s',
    async (text) => {
      await writeFile(lockFile(), text)
      const lock = await lockFolder(folder)
      await lock.release()
    },
  )
})

/** What a process wrote that took the lock and was then killed. */
async function markOfKilledProcess(): Promise<string> {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'])
  await once(child, 'spawn')
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
  return JSON.stringify({ pid: child.pid, startedAt: null })
}
