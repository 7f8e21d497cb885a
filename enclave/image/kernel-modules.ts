import { BuildError } from './build-error.ts'
import { type FileTree, type TreeEntry, textFile } from './file-tree.ts'

/**
 * Gives the modules of `names` and all that they need, of a Debian kernel package's tree, by name, each after what it
 * needs. Throws BuildError `module_missing`, also for one that is built into the kernel.
 */
export function collectModules(tree: FileTree, names: readonly string[]): ReadonlyMap<string, TreeEntry> {
  const files = new Map([...tree].flatMap(([path, entry]) => readModule(path, entry)))
  const ordered = new Map<string, TreeEntry>()
  const add = (name: string, wantedBy: string): void => {
    const found = files.get(name)
    if (ordered.has(name)) return
    if (found === undefined)
      throw new BuildError(
        'module_missing',
        `the kernel package has no module ${name}, wanted by ${wantedBy}`,
      )
    for (const needed of listNeeds(found.data)) add(needed, name)
    ordered.set(name, found)
  }
  for (const name of names) add(name, 'kernel.json')
  return ordered
}

/**
 * Gives modules as they stand in the boot ramdisk: `modules/NAME.ko`, and `modules/order`, the names of these files in the
 * order in which they are loaded, one a line.
 */
export function layOutModules(modules: ReadonlyMap<string, TreeEntry>): FileTree {
  const order = [...modules.keys()].map((name) => `${name}.ko\n`).join('')
  return new Map([
    ...[...modules].map(([name, entry]) => [`modules/${name}.ko`, entry] as const),
    ['modules/order', textFile(order)],
  ])
}

type ModuleFile = { readonly kind: 'file'; readonly mode: number; readonly data: Uint8Array }

/** The kernel takes `-` and `_` in a module's name for the same. */
function readModule(path: string, entry: TreeEntry): readonly (readonly [string, ModuleFile])[] {
  const name = /([^/]+)\.ko$/.exec(path)?.[1]
  if (name === undefined || entry.kind !== 'file') return []
  return [[name.replaceAll('-', '_'), { ...entry, mode: 0o644 }]]
}

/** Of the section `.modinfo`: texts that end in a zero byte, `depends=` one of them in every module. */
function listNeeds(module: Uint8Array): readonly string[] {
  const text = Buffer.from(module.buffer, module.byteOffset, module.length).toString('latin1')
  const needs = /\0depends=([\w,-]*)\0/.exec(text)?.[1]
  if (needs === undefined)
    throw new BuildError('module_missing', 'a kernel module does not say what it needs')
  return needs
    .split(',')
    .filter((name) => name !== '')
    .map((name) => name.replaceAll('-', '_'))
}
