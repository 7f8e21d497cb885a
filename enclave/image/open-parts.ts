import { BuildError } from './build-error.ts'
import { type DebianPackage, openDebianPackage, type PackageSource } from './debian-packages.ts'
import type { DependencyClosure } from './dependency-closure.ts'
import { type FileTree, mergeTrees, prefixTree, type TreeEntry } from './file-tree.ts'
import { openNpmPackage } from './npm-packages.ts'
import type { Dependency } from './report.ts'

export type OpenedPackage = { readonly pinned: DebianPackage; readonly tree: FileTree }

type OpenedDependencies = {
  readonly node: TreeEntry
  /** `package.json`, `package-lock.json` and `node_modules/**`. */
  readonly tree: FileTree
  readonly list: readonly Dependency[]
}

/** Opens packages one after the other: one request at a time to a mirror. Throws BuildError. */
export async function openDebianPackages(
  packages: readonly DebianPackage[],
  source: PackageSource,
): Promise<readonly OpenedPackage[]> {
  const opened: OpenedPackage[] = []
  for (const pinned of packages)
    opened.push({ pinned, tree: await openDebianPackage(pinned, source) })
  return opened
}

export function selectFiles(
  opened: readonly OpenedPackage[],
  into: DebianPackage['into'][number],
): FileTree {
  return mergeTrees(
    ...opened.filter(({ pinned }) => pinned.into.includes(into)).map(({ tree }) => tree),
  )
}

/** Throws BuildError. */
export async function openDependencies(
  { runtime, packages, manifests }: DependencyClosure,
  source: PackageSource,
): Promise<OpenedDependencies> {
  const nodeTree = await openNpmPackage(runtime, source)
  const trees: FileTree[] = [manifests]
  const list: Dependency[] = [describePackage('runtime', runtime, nodeTree)]
  for (const pinned of packages) {
    const tree = await openNpmPackage(pinned, source)
    trees.push(prefixTree(`node_modules/${pinned.name}`, tree))
    list.push(describePackage('npm', pinned, tree))
  }
  return { node: getEntry(nodeTree, 'bin/node'), tree: mergeTrees(...trees), list }
}

export function describePackage(
  kind: Dependency['kind'],
  { name, version, why }: { readonly name: string; readonly version: string; readonly why: string },
  tree: FileTree,
): Dependency {
  return { kind, name, version, why, bytes: countBytes(tree) }
}

export function countBytes(tree: FileTree): number {
  return [...tree.values()].reduce(
    (sum, entry) => sum + (entry.kind === 'file' ? entry.data.length : 0),
    0,
  )
}

/** Throws BuildError `package_incomplete` if the entry is missing. */
export function getEntry(tree: FileTree, path: string): TreeEntry {
  const entry = tree.get(path)
  if (entry === undefined) throw new BuildError('package_incomplete', `expected a file ${path}`)
  return entry
}
