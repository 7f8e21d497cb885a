import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { CliError } from './exit-codes.ts'
import { printable } from './printable.ts'

/** Writes text to a file, or to standard output when there is none. Throws CliError. */
export async function writeOutput(text: string, path: string | undefined): Promise<void> {
  if (path === undefined) process.stdout.write(text)
  else await writeFileWhole(path, text)
}

/**
 * Writes a file whole or not at all, also when the machine stops in between: written beside it, synced, and renamed. Only
 * the owner can read it unless `mode` says otherwise, for evidence holds prompts. Throws CliError.
 */
export async function writeFileWhole(path: string, text: string, mode = 0o600): Promise<void> {
  const draft = `${path}.${randomBytes(6).toString('hex')}`
  try {
    await writeSynced(draft, text, mode)
    await rename(draft, path)
    await syncFolder(dirname(path))
  } catch (fault) {
    await rm(draft, { force: true })
    throw new CliError(
      `cannot write ${printable(path)}: ${fault instanceof Error ? fault.message : 'unknown fault'}`,
    )
  }
}

async function writeSynced(path: string, text: string, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode)
  await file.writeFile(text)
  await file.sync()
}

/** The rename itself is in the folder. */
async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path)
  await folder.sync()
}
