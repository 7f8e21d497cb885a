import { matchesGlob } from 'node:path/posix'
import { BuildError } from './build-error.ts'

/**
 * The content of a ramdisk: entries by path. A path has no leading slash, no empty part, no `.` or
 * `..`. In the ramdisk, all entries belong to root, and their time is 0.
 */
export type FileTree = ReadonlyMap<string, TreeEntry>

/** `mode` contains the twelve permission bits. A link has no mode. */
export type TreeEntry =
  | { readonly kind: 'file'; readonly mode: number; readonly data: Uint8Array }
  | { readonly kind: 'directory'; readonly mode: number }
  | { readonly kind: 'link'; readonly target: string }
  | {
      readonly kind: 'device'
      readonly mode: number
      readonly major: number
      readonly minor: number
    }

/** Two parts of an image use the same path, or a path is not valid. */
export class TreeError extends Error {
  override readonly name = 'TreeError'
}

/** Merges several trees. Only a directory may be in more than one tree. Throws TreeError. */
export function mergeTrees(...trees: readonly FileTree[]): FileTree {
  const merged = new Map<string, TreeEntry>()
  for (const tree of trees)
    for (const [path, entry] of tree) {
      const known = merged.get(path)
      const isSame =
        known?.kind === 'directory' && entry.kind === 'directory' && known.mode === entry.mode
      if (known !== undefined && !isSame) throw new TreeError(`two parts of the image have ${path}`)
      merged.set(path, entry)
    }
  return merged
}

export function prefixTree(prefix: string, tree: FileTree): FileTree {
  return new Map([...tree].map(([path, entry]) => [`${prefix}/${path}`, entry]))
}

/** Adds missing parent directories of all paths, with mode 0755. Throws TreeError. */
export function addParents(tree: FileTree): FileTree {
  const whole = new Map(tree)
  for (const path of tree.keys()) {
    checkPath(path)
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
      const parent = path.slice(0, end)
      const known = whole.get(parent)
      if (known === undefined) whole.set(parent, { kind: 'directory', mode: 0o755 })
      else if (known.kind !== 'directory')
        throw new TreeError(`${path} is below ${parent}, a ${known.kind}`)
    }
  }
  return whole
}

export function textFile(text: string, mode = 0o644): TreeEntry {
  return { kind: 'file', mode, data: new TextEncoder().encode(text) }
}

function checkPath(path: string): void {
  const parts = path.split('/')
  if (path.includes('\0') || parts.some((part) => part === '' || part === '.' || part === '..'))
    throw new TreeError(`expected a path of plain names, got ${JSON.stringify(path)}`)
}

/**
 * Returns the entries of `tree` whose paths match a pattern (globs: `*` within a name, `**` across
 * folders). Throws BuildError `package_incomplete` if a pattern matches no entry. Thus the build
 * fails if a package no longer has a file at its path.
 */
export function takeFiles(
  tree: FileTree,
  of: { package: string; patterns: readonly string[] },
): FileTree {
  const unused = of.patterns.filter(
    (pattern) => ![...tree.keys()].some((path) => matchesGlob(path, pattern)),
  )
  if (unused.length > 0)
    throw new BuildError('package_incomplete', `${of.package} has no file ${unused.join(', ')}`)
  return new Map(
    [...tree].filter(([path]) => of.patterns.some((pattern) => matchesGlob(path, pattern))),
  )
}
