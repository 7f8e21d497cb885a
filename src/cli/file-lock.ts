import { mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '#attestation/report/printable.ts'
import { DataFolderInUse, type FolderLock, lockFolder } from '../runtime/folder-lock.ts'
import { CliError } from './faults.ts'

const POLL_MS = 100

/**
 * Locks `file` for this process, with the folder `file`.lock, which stays. Waits at most
 * `timeoutMs` for another process. Throws CliError, with `advice` if the lock cannot be written.
 */
export async function lockFile(
  file: string,
  { timeoutMs, advice }: { readonly timeoutMs: number; readonly advice: string },
): Promise<FolderLock> {
  const folder = `${file}.lock`
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 })
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const deadline = performance.now() + timeoutMs
    for (;;) {
      const lock = await lockFolder(folder).catch((fault: unknown) => {
        if (fault instanceof DataFolderInUse && performance.now() < deadline) return null
        throw fault
      })
      if (lock !== null) return lock
      await sleep(POLL_MS)
    }
  } catch (fault) {
    const reason = fault instanceof Error ? printable(fault.message) : 'unknown fault'
    throw new CliError(
      fault instanceof DataFolderInUse
        ? `another program of this machine has held ${printable(folder)} for ` +
            `${timeoutMs / 1000} s: end it, then run this again`
        : `cannot write ${printable(file)}: ${reason}. ${advice}`,
    )
  }
}
