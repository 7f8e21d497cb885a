import { readFile } from 'node:fs/promises'
import type { z } from 'zod'

type BuildErrorCode =
  | 'missing_tool' //         a program that the builder runs is not installed
  | 'command_failed' // a program that the builder runs failed
  | 'package_unavailable' //  no source has the pinned version of a package
  | 'package_altered' // a package does not have the pinned size or digest
  | 'package_incomplete' // a package lacks a file that is needed
  | 'pins_malformed' // a file with pins does not have the required form
  | 'closure_incomplete' //   a dependency of a listed package is not listed
  | 'no_work_tree' // the sources are not a git checkout, so their files are unknown
  | 'module_missing' // the kernel's package lacks a module, or a dependency of a module
  | 'archive_malformed' // a tar archive does not have the required form
  | 'options' // an option is missing or unknown, or has a wrong value

/** The image was not built, or the pins were not renewed. The message states what to correct. */
export class BuildError extends Error {
  override readonly name = 'BuildError'
  readonly code: BuildErrorCode

  constructor(code: BuildErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Reads a file that an option names, or a required file of the project. Throws BuildError
 * `options`.
 */
export async function readInput(path: string): Promise<Uint8Array> {
  try {
    return new Uint8Array(await readFile(path))
  } catch (error) {
    throw new BuildError('options', error instanceof Error ? error.message : `${path}: unreadable`)
  }
}

/** Parses the JSON file `name`, which contains pins. Throws BuildError `pins_malformed`. */
export function parsePins<Value>(name: string, form: z.ZodType<Value>, bytes: Uint8Array): Value {
  try {
    return form.parse(JSON.parse(Buffer.from(bytes).toString('utf8')))
  } catch (error) {
    const reason = error instanceof Error ? error.message : error
    throw new BuildError('pins_malformed', `${name}: ${reason}`)
  }
}
