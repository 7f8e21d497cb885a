import { readFile } from 'node:fs/promises'
import { BuildError } from './build-error.ts'

/** Reads a file that an option names, or one of the project's that must be there. Throws BuildError `options`. */
export async function readInput(path: string): Promise<Uint8Array> {
  try {
    return new Uint8Array(await readFile(path))
  } catch (error) {
    throw new BuildError('options', error instanceof Error ? error.message : `${path}: unreadable`)
  }
}
