import { createHash } from 'node:crypto'
import { lstat, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject } from '#attestation/json/value.ts'
import { listLoadedSources } from '#enclave/image/loaded-sources.ts'
import { SoftwareNsmError } from './development-root.ts'

/** Fixes the version of each dependency. */
const MEASURED_RUNTIME_FILES = ['package-lock.json'] as const

export type SourceMeasurements = {
  /** Runtime and application. */
  readonly pcr0: Uint8Array
  /** The platform's name, Node's version, MEASURED_RUNTIME_FILES. */
  readonly pcr1: Uint8Array
  /** Every file that enclave/main.ts loads. */
  readonly pcr2: Uint8Array
}

/**
 * Measures the enclave's own source, in place of an enclave image. A register is SHA384(48 zero
 * bytes || SHA384(list)), as for images. A list has one line `<SHA-384 hex>  <path>` per file.
 * Paths have `/` and are sorted by code unit. The lists of pcr0 and pcr1 begin with the lines in
 * `runtime`. Proves nothing: a user can measure any files, and no process is compared with the
 * files. Throws SoftwareNsmError `invalid_source` if a path is not a plain file, for example a
 * missing file or a symbolic link.
 */
export async function measureSource(options: {
  readonly root: string
  readonly runtime: readonly string[]
}): Promise<SourceMeasurements> {
  try {
    const application = await listDigests(options.root, await listLoadedSources(options.root))
    const runtimeFiles = await listDigests(options.root, MEASURED_RUNTIME_FILES)
    const runtime = `${options.runtime.map((line) => `${line}\n`).join('')}${runtimeFiles}`
    return {
      pcr0: digestRegister(runtime + application),
      pcr1: digestRegister(runtime),
      pcr2: digestRegister(application),
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown'
    throw new SoftwareNsmError('invalid_source', `cannot measure the source: ${reason}`, {
      cause: error,
    })
  }
}

async function listDigests(root: string, files: readonly string[]): Promise<string> {
  const lines = files.map(async (file) => {
    const path = join(root, file)
    if (!(await lstat(path)).isFile()) throw new Error(`expected a plain file: ${file}`)
    const digest = createHash('sha384').update(await readFile(path))
    return `${digest.digest('hex')}  ${file}\n`
  })
  return (await Promise.all(lines)).join('')
}

function digestRegister(list: string): Uint8Array {
  const inner = createHash('sha384').update(list, 'utf8').digest()
  return new Uint8Array(createHash('sha384').update(new Uint8Array(48)).update(inner).digest())
}

/** Three registers, with white space. */
export const MEASUREMENTS_FILE_BYTES_MAX = 4096

/**
 * Reads the registers that the machine measured when it booted the image. The file is a JSON object
 * with exactly the members "0", "1" and "2", each 96 lower-case hex digits. Throws FormatError
 * `invalid_measurements`, or JsonError. Does NOT prove that this image runs: the user who started
 * the machine wrote the file.
 */
export function parseGivenMeasurements(bytes: Uint8Array): SourceMeasurements {
  if (bytes.length > MEASUREMENTS_FILE_BYTES_MAX)
    throw invalid(`expected at most ${MEASUREMENTS_FILE_BYTES_MAX} bytes`)
  const value = parseStrictJson(bytes)
  if (!isJsonObject(value) || Object.keys(value).sort().join() !== '0,1,2')
    throw invalid('expected an object with exactly the members "0", "1" and "2"')
  const registerOf = (index: '0' | '1' | '2') => {
    const digits = value[index]
    if (typeof digits === 'string' && /^[0-9a-f]{96}$/.test(digits)) return decodeHex(digits)
    throw invalid(`expected "${index}" to be 96 lower-case hex digits`)
  }
  return { pcr0: registerOf('0'), pcr1: registerOf('1'), pcr2: registerOf('2') }
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_measurements', message)
}
