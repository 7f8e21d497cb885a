import { link, readFile, rename, unlink, writeFile } from 'node:fs/promises'
import path from 'node:path'

/** Another process has the data folder open. Stop it, or give this one a folder of its own. */
export class DataFolderInUse extends Error {
  override readonly name = 'DataFolderInUse'
  constructor(folder: string, pid: number) {
    super(
      `expected the data folder for ourselves, but process ${pid} has it open: ${folder}. ` +
        'Stop that process, or set DATA_DIR to another folder.',
    )
  }
}

/** A held lock; `release` gives the folder back. */
export type FolderLock = { release(): Promise<void> }

/**
 * Takes a folder for this process by a file `lock` that names it. A lock whose process is gone (kill -9) is taken over;
 * a process is recognised by pid and start time where the system tells it, so that a reused pid does not lock us out.
 * Rejects with DataFolderInUse. It guards against accidents on one machine, not over network file systems.
 */
export async function lockFolder(folder: string): Promise<FolderLock> {
  const file = path.join(folder, 'lock')
  const own = JSON.stringify(await describeProcess(process.pid))
  const draft = `${file}.${process.pid}.${crypto.randomUUID()}`
  await writeFile(draft, own)
  try {
    for (let attempt = 0; attempt < TAKEOVER_ATTEMPTS_MAX; attempt++) {
      if (await linkExclusively(draft, file)) return { release: () => releaseLock(file, own) }
      await removeStaleLock(folder, file)
    }
    throw new Error(`expected to lock ${folder}, but other processes kept taking the lock`)
  } finally {
    await unlink(draft)
  }
}

const TAKEOVER_ATTEMPTS_MAX = 10

type ProcessMark = { readonly pid: number; readonly startedAt: string | null }

/** Hard-linking a complete file is atomic: nobody ever reads a lock that is half written. */
async function linkExclusively(draft: string, file: string): Promise<boolean> {
  try {
    await link(draft, file)
    return true
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false
    throw error
  }
}

/** Moves a stale lock aside. When two do so at once, the slower may have moved a fresh one: it puts that back. */
async function removeStaleLock(folder: string, file: string): Promise<void> {
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === null) return
  const holder = parseMark(text)
  if (holder !== null && (await isAlive(holder))) throw new DataFolderInUse(folder, holder.pid)
  const aside = `${file}.${process.pid}.${crypto.randomUUID()}`
  try {
    await rename(file, aside)
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return
    throw error
  }
  if ((await readFile(aside, 'utf8')) !== text) await linkExclusively(aside, file)
  await unlink(aside)
}

async function releaseLock(file: string, own: string): Promise<void> {
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === own) await unlink(file)
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
    // EPERM: it exists and belongs to somebody else.
    if (hasCode(error, 'ESRCH')) return false
  }
  const { startedAt } = await describeProcess(holder.pid)
  return startedAt === null || holder.startedAt === null || startedAt === holder.startedAt
}

/** Linux tells when a process began (proc_pid_stat(5), field 22, ticks since boot) and which boot this is. */
async function describeProcess(pid: number): Promise<ProcessMark> {
  try {
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    // The name, field 2, may hold anything, also brackets: fields are counted from the last one.
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
    return { pid, startedAt: ticks === undefined ? null : `${boot.trim()}/${ticks}` }
  } catch {
    return { pid, startedAt: null }
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
