import { matchesGlob } from 'node:path/posix'
import { BuildError } from './build-error.ts'
import type { FileTree } from './file-tree.ts'

/**
 * Gives the entries of `tree` whose path one of the patterns matches (globs: `*` within a name, `**` over folders). Each
 * pattern must match something, so that a package that moves a file is noticed when the image is built and not when
 * it runs. Throws BuildError `package_incomplete`.
 */
export function takeFiles(tree: FileTree, of: { package: string; patterns: readonly string[] }): FileTree {
  const unused = of.patterns.filter((pattern) => ![...tree.keys()].some((path) => matchesGlob(path, pattern)))
  if (unused.length > 0)
    throw new BuildError('package_incomplete', `${of.package} has no file ${unused.join(', ')}`)
  return new Map([...tree].filter(([path]) => of.patterns.some((pattern) => matchesGlob(path, pattern))))
}
