import { join } from 'node:path'
import { BuildError, readInput } from './build-error.ts'
import { type FileTree, mergeTrees, prefixTree, type TreeEntry, textFile } from './file-tree.ts'
import { getEntry, type OpenedPackage, selectFiles } from './open-parts.ts'
import type { ImageOptions } from './options.ts'
import type { Pins } from './pins.ts'

type BootParts = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  /** Name of the kernel in the image's metadata. */
  readonly kernelVersion: string
  readonly ramdisk: FileTree
  /** The files from Debian's kernel package: the kernel and its modules. */
  readonly kernelFiles: FileTree
  /** The files that the operator provided, by purpose. */
  readonly own: Readonly<Record<string, Uint8Array>>
}

/**
 * Collects kernel, command line and boot ramdisk. The kernel is Debian's kernel with its modules,
 * or the operator's kernel with built-in drivers. The init is our script, or an init program like
 * AWS's. Throws BuildError.
 */
export async function collectBootParts(
  root: string,
  options: Pick<ImageOptions, 'kernel' | 'initFile' | 'nsmModuleFile'>,
  {
    kernel: pins,
    opened,
  }: { readonly kernel: Pins['kernel']; readonly opened: readonly OpenedPackage[] },
): Promise<BootParts> {
  const nsm = options.nsmModuleFile === null ? null : await readInput(options.nsmModuleFile)
  const init = await readInput(options.initFile ?? join(root, 'enclave/image/guest/boot-init'))
  const chosen = await chooseKernel(options, { pins, opened })
  const nsmEntry: TreeEntry | null = nsm === null ? null : { kind: 'file', mode: 0o644, data: nsm }
  const initEntry: TreeEntry = { kind: 'file', mode: 0o755, data: init }
  const ramdisk =
    options.initFile === null
      ? layOutBoot({
          init: initEntry,
          system: selectFiles(opened, 'boot'),
          modules: layOutModules(withNsm(chosen.modules, nsmEntry)),
        })
      : layOutForeignBoot({ init: initEntry, nsm: nsmEntry })
  const own = {
    ...chosen.own,
    ...(options.initFile === null ? {} : { init }),
    ...(nsm === null ? {} : { 'nsm.ko': nsm }),
  }
  return {
    kernel: chosen.kernel,
    cmdline: chosen.cmdline,
    kernelVersion: chosen.kernelVersion,
    kernelFiles: new Map<string, TreeEntry>([
      ...chosen.modules,
      ['kernel', { kind: 'file', mode: 0o644, data: chosen.kernel }],
    ]),
    ramdisk,
    own,
  }
}

type ChosenKernel = Omit<BootParts, 'ramdisk' | 'kernelFiles'> & {
  readonly modules: ReadonlyMap<string, TreeEntry>
}

async function chooseKernel(
  { kernel }: Pick<ImageOptions, 'kernel'>,
  { pins, opened }: { readonly pins: Pins['kernel']; readonly opened: readonly OpenedPackage[] },
): Promise<ChosenKernel> {
  if (kernel !== null) {
    const [bytes, cmdlineBytes] = await Promise.all([
      readInput(kernel.file),
      readInput(kernel.cmdlineFile),
    ])
    const cmdline = Buffer.from(cmdlineBytes).toString('utf8').trim()
    if (!/^[ -~]+$/.test(cmdline))
      throw new BuildError('options', `${kernel.cmdlineFile}: expected one line of ASCII`)
    return {
      kernel: bytes,
      cmdline,
      kernelVersion: 'own',
      modules: new Map(),
      own: { kernel: bytes, cmdline: cmdlineBytes },
    }
  }
  const tree = selectFiles(opened, 'kernel')
  const path = [...tree.keys()].find((name) => name.startsWith(KERNEL_PATH)) ?? KERNEL_PATH
  const entry = getEntry(tree, path)
  if (entry.kind !== 'file')
    throw new BuildError('package_incomplete', `expected ${path} to be a file`)
  const names = pins.modules.map(({ name }) => name)
  return {
    kernel: entry.data,
    cmdline: pins.cmdline,
    kernelVersion: path.slice(KERNEL_PATH.length),
    modules: collectModules(tree, names),
    own: {},
  }
}

const KERNEL_PATH = 'boot/vmlinuz-'

function withNsm(
  modules: ReadonlyMap<string, TreeEntry>,
  nsm: TreeEntry | null,
): ReadonlyMap<string, TreeEntry> {
  return nsm === null ? modules : new Map([...modules, ['nsm', nsm]])
}

/**
 * Returns the modules with these names and their dependencies, from the tree of a Debian kernel
 * package. Each module comes after its dependencies. Throws BuildError `module_missing`, even for a
 * module that is built into the kernel.
 */
export function collectModules(
  tree: FileTree,
  names: readonly string[],
): ReadonlyMap<string, TreeEntry> {
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
 * Lays out modules for the boot ramdisk: `modules/NAME.ko` for each module. `modules/order` lists
 * these files in their loading order, one per line.
 */
export function layOutModules(modules: ReadonlyMap<string, TreeEntry>): FileTree {
  const order = [...modules.keys()].map((name) => `${name}.ko\n`).join('')
  return new Map([
    ...[...modules].map(([name, entry]) => [`modules/${name}.ko`, entry] as const),
    ['modules/order', textFile(order)],
  ])
}

type ModuleFile = Extract<TreeEntry, { kind: 'file' }>

/** In a module's name, `-` and `_` are the same character for the kernel. */
function readModule(path: string, entry: TreeEntry): readonly (readonly [string, ModuleFile])[] {
  const name = /([^/]+)\.ko$/.exec(path)?.[1]
  if (name === undefined || entry.kind !== 'file') return []
  return [[name.replaceAll('-', '_'), { ...entry, mode: 0o644 }]]
}

/** Reads the section `.modinfo`: texts that end in a zero byte, one of them `depends=`. */
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

/** Folder of the sources and their dependencies in the root file system. */
const PROGRAM_FOLDER = 'opt/affidavit'

type ApplicationParts = {
  /** Our sources that the enclave loads, by their paths in the project. */
  readonly sources: FileTree
  /** `package.json`, `package-lock.json` and `node_modules/**`. */
  readonly dependencies: FileTree
  readonly node: TreeEntry
  /** Files of Debian packages, by their absolute paths without the leading slash. */
  readonly system: FileTree
  /** Files below `etc/`. */
  readonly settings: FileTree
  /** The script that starts the application: guest/enclave-init. */
  readonly init: TreeEntry
}

/**
 * Lays out the application ramdisk like AWS's own tools: `/cmd` and `/env`, one string per line,
 * and the root file system below `/rootfs`. Thus the application runs under AWS's init program and
 * under our init.
 */
export function layOutApplication(parts: ApplicationParts): FileTree {
  const root = mergeTrees(
    prefixTree(PROGRAM_FOLDER, mergeTrees(parts.sources, parts.dependencies)),
    parts.system,
    parts.settings,
    new Map<string, TreeEntry>([
      ['usr/bin/node', parts.node],
      ['usr/sbin/enclave-init', parts.init],
      ['bin/sh', { kind: 'link', target: 'busybox' }],
      ...emptyFolders(['dev', 'proc', 'sys', 'run']),
      ['tmp', { kind: 'directory', mode: 0o1777 }],
    ]),
  )
  return mergeTrees(
    prefixTree('rootfs', root),
    new Map([
      ['cmd', textFile('/usr/sbin/enclave-init\n')],
      ['env', textFile('PATH=/usr/sbin:/usr/bin:/sbin:/bin\n')],
    ]),
  )
}

type BootLayout = {
  /** `/init`: guest/boot-init, or the operator's init program. */
  readonly init: TreeEntry
  /** `bin/busybox`, which our init needs. */
  readonly system: FileTree
  readonly modules: FileTree
}

function layOutBoot({ init, system, modules }: BootLayout): FileTree {
  return mergeTrees(
    system,
    modules,
    new Map<string, TreeEntry>([
      ['init', init],
      ['bin/sh', { kind: 'link', target: 'busybox' }],
      // The kernel opens this device for /init before /init mounts a file system.
      ['dev/console', { kind: 'device', mode: 0o600, major: 5, minor: 1 }],
      ...emptyFolders(['proc', 'sys']),
    ]),
  )
}

/**
 * Lays out the boot ramdisk for an init program like AWS's: the program, and the driver that it
 * loads, if any. The program needs no other files.
 */
function layOutForeignBoot({ init, nsm }: { init: TreeEntry; nsm: TreeEntry | null }): FileTree {
  return new Map<string, TreeEntry>([
    ['init', init],
    ...(nsm === null ? [] : ([['nsm.ko', nsm]] as const)),
  ])
}

function emptyFolders(paths: readonly string[]): readonly (readonly [string, TreeEntry])[] {
  return paths.map((path) => [path, { kind: 'directory', mode: 0o755 }] as const)
}
