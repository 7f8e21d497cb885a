import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { NsmError } from './nsm.ts'

/** Folders of the project that are the application: an image has every file of them, and here all but READMEs are measured. */
export const MEASURED_FOLDERS = ['attestation', 'enclave'] as const

/** Files below the measured root that fix what runs besides: the exact version of each dependency. */
export const MEASURED_RUNTIME_FILES = ['package-lock.json'] as const

export type SourceMeasurements = {
  /** Runtime and application. */
  readonly pcr0: Uint8Array
  /** Runtime: the names of platform and Node's version, MEASURED_RUNTIME_FILES. */
  readonly pcr1: Uint8Array
  /** Application: every file of MEASURED_FOLDERS. */
  readonly pcr2: Uint8Array
}

/**
 * Gives measurements of the enclave's own source, in the place of those of an enclave image: any file added,
 * removed, renamed or changed changes PCR2 and PCR0. Each list is one line `<SHA-384 hex>  <path>` per file, paths
 * with `/`, sorted by code unit; the register is SHA384(48 zero bytes || SHA384(list)), as for images.
 * `runtime` are lines that go before the runtime's files, e.g. Node's version.
 * Does not prove anything: the process measures itself, and it measures files, not what it loaded of them.
 * Throws NsmError InvalidSource for a missing folder, a symbolic link or anything else that is no plain file.
 */
export async function measureSource(options: {
  readonly root: string
  readonly runtime: readonly string[]
}): Promise<SourceMeasurements> {
  try {
    const files = (
      await Promise.all(MEASURED_FOLDERS.map((folder) => listFiles(options.root, folder)))
    ).flat()
    const application = await listDigests(options.root, files.sort())
    const runtimeFiles = await listDigests(options.root, MEASURED_RUNTIME_FILES)
    const runtime = `${options.runtime.map((line) => `${line}\n`).join('')}${runtimeFiles}`
    return {
      pcr0: digestRegister(runtime + application),
      pcr1: digestRegister(runtime),
      pcr2: digestRegister(application),
    }
  } catch (error) {
    if (error instanceof NsmError) throw error
    const reason = error instanceof Error ? error.message : 'unknown'
    throw new NsmError('InvalidSource', `cannot measure the source: ${reason}`, { cause: error })
  }
}

async function listFiles(root: string, folder: string): Promise<readonly string[]> {
  const entries = await readdir(join(root, folder), { withFileTypes: true })
  const lists = entries.map(async (entry): Promise<readonly string[]> => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return listFiles(root, path)
    if (!entry.isFile()) throw new NsmError('InvalidSource', `expected a plain file or folder: ${path}`)
    return entry.name === 'README.md' ? [] : [path]
  })
  return (await Promise.all(lists)).flat()
}

async function listDigests(root: string, files: readonly string[]): Promise<string> {
  const lines = files.map(async (file) => {
    const digest = createHash('sha384').update(await readFile(join(root, file)))
    return `${digest.digest('hex')}  ${file}\n`
  })
  return (await Promise.all(lines)).join('')
}

function digestRegister(list: string): Uint8Array {
  const inner = createHash('sha384').update(list, 'utf8').digest()
  return new Uint8Array(createHash('sha384').update(new Uint8Array(48)).update(inner).digest())
}
