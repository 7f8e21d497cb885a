import { link, readdir, readFile, rename, unlink, writeFile } from 'node:fs/promises'
import path from 'node:path'

/** Another process has the folder open. */
export class DataFolderInUse extends Error {
  override readonly name = 'DataFolderInUse'
  constructor(folder: string, pid: number) {
    super(
      `expected the data folder for ourselves, but process ${pid} has it open: ${folder}. ` +
        'Stop that process, or set DATA_DIR to another folder.',
    )
  }
}

export type FolderLock = { release(): Promise<void> }

/**
 * Locks a folder for this process. The lock of a dead process (kill -9) is taken over. Throws
 * DataFolderInUse. The lock protects against mistakes on one machine, not on network file systems.
 *
 * A process is identified by its pid and, if the system shows it, its start time, because pids are
 * reused. Locks are files `lock.1`, `lock.2`, and so on; only the highest number counts. A dead
 * lock is never replaced, because another process could replace it between our reading and our
 * deletion. Instead, a file with the next number is created, which only one process can do. The
 * highest file is never deleted, only marked as released, so a slow process that creates an old
 * number finds a higher one.
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  const draft = path.join(folder, `draft.${process.pid}.${crypto.randomUUID()}`)
  await writeFile(draft, JSON.stringify(await describeProcess(process.pid)))
  try {
    for (;;) {
      const [last = 0] = await listLocks(folder)
      await checkNotHeld(folder, last)
      if (!(await linkExclusively(draft, lockFile(folder, last + 1)))) continue
      const [highest = 0, ...lower] = await listLocks(folder)
      const isOurs = highest === last + 1
      for (const number of isOurs ? lower : [last + 1])
        await unlink(lockFile(folder, number)).catch(ignoreMissing)
      if (isOurs) return { release: () => releaseLock(folder, highest) }
    }
  } finally {
    await unlink(draft)
  }
}

type ProcessMark = { readonly pid: number; readonly startedAt: string | null }

function lockFile(folder: string, number: number): string {
  return path.join(folder, `lock.${number}`)
}

/** Highest first. */
async function listLocks(folder: string): Promise<readonly number[]> {
  const numbers = (await readdir(folder)).map((name) =>
    Number(/^lock\.(\d{1,15})$/.exec(name)?.[1] ?? 0),
  )
  return numbers.filter((number) => number > 0).toSorted((left, right) => right - left)
}

async function checkNotHeld(folder: string, number: number): Promise<void> {
  const text = await readFile(lockFile(folder, number), 'utf8').catch(ignoreMissing)
  const holder = text === undefined ? null : parseMark(text)
  if (holder !== null && (await isAlive(holder))) throw new DataFolderInUse(folder, holder.pid)
}

/** A hard link to a complete file appears in one step, so no process reads a half-written lock. */
async function linkExclusively(draft: string, file: string): Promise<boolean> {
  try {
    await link(draft, file)
    return true
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false
    throw error
  }
}

async function releaseLock(folder: string, number: number): Promise<void> {
  const draft = path.join(folder, `draft.${process.pid}.${crypto.randomUUID()}`)
  await writeFile(draft, 'released')
  await rename(draft, lockFile(folder, number))
}

function ignoreMissing(error: unknown): undefined {
  if (!hasCode(error, 'ENOENT')) throw error
}

function parseMark(text: string): ProcessMark | null {
  try {
    const { pid, startedAt } = JSON.parse(text)
    const known =
      Number.isSafeInteger(pid) && pid > 0 && (startedAt === null || typeof startedAt === 'string')
    return known ? { pid, startedAt } : null
  } catch {
    return null
  }
}

async function isAlive(holder: ProcessMark): Promise<boolean> {
  try {
    process.kill(holder.pid, 0)
  } catch (error) {
    // EPERM: the process exists but belongs to another user.
    if (hasCode(error, 'ESRCH')) return false
  }
  const { startedAt } = await describeProcess(holder.pid)
  return startedAt === null || holder.startedAt === null || startedAt === holder.startedAt
}

/**
 * On Linux, the start time consists of the boot's id and of field 22 of proc_pid_stat(5): ticks
 * since boot.
 */
async function describeProcess(pid: number): Promise<ProcessMark> {
  try {
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    // The name of the process, field 2, may contain brackets, so fields are counted after the last
    // bracket.
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
    return { pid, startedAt: ticks === undefined ? null : `${boot.trim()}/${ticks}` }
  } catch {
    return { pid, startedAt: null }
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
