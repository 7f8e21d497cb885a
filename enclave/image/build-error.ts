import { readFile } from 'node:fs/promises'

/** Why an image was not built. */
type BuildErrorCode =
  | 'missing_tool' //         a program that the builder runs is not installed
  | 'command_failed' //       such a program failed
  | 'package_unavailable' //  no source has the pinned version of a package
  | 'package_altered' //      a package has another size or digest than is pinned
  | 'package_incomplete' //   a package lacks a file that is to be taken from it
  | 'pins_malformed' //       packages.json, dependencies.json or package-lock.json is not in its form
  | 'closure_incomplete' //   a dependency of a listed package is not listed
  | 'no_work_tree' //         the sources are no git checkout, so that nothing says which files belong to them
  | 'module_missing' //       a kernel module, or one that it needs, is not in the kernel's package
  | 'archive_malformed' //    a tar archive is not in its form
  | 'options' //              an option is missing, unknown or has no such value

/**
 * The image was not built, or the pins were not renewed. The operator mends what the message names.
 */
export class BuildError extends Error {
  override readonly name = 'BuildError'
  readonly code: BuildErrorCode

  constructor(code: BuildErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Reads a file that an option names, or one of the project's that must be there. Throws BuildError
 * `options`.
 */
export async function readInput(path: string): Promise<Uint8Array> {
  try {
    return new Uint8Array(await readFile(path))
  } catch (error) {
    throw new BuildError('options', error instanceof Error ? error.message : `${path}: unreadable`)
  }
}
