import { type FileTree, mergeTrees, prefixTree, type TreeEntry, textFile } from './file-tree.ts'

/** Where the sources and their dependencies are in the root file system. */
export const PROGRAM_FOLDER = 'opt/affidavit'

/** What the application ramdisk is made of. */
export type ApplicationParts = {
  /** What the verifier loads of our own, by its paths in the project. */
  readonly sources: FileTree
  /** `package.json`, `package-lock.json` and `node_modules/**`. */
  readonly dependencies: FileTree
  /** The Node.js binary. */
  readonly node: TreeEntry
  /** Files of Debian packages, by their absolute paths without the slash. */
  readonly system: FileTree
  /** Files below `etc/`. */
  readonly settings: FileTree
  /** The script that starts all of it: guest/enclave-init. */
  readonly init: TreeEntry
}

/**
 * Gives the application ramdisk as AWS's own tools lay one out: `/cmd` and `/env`, one string a line, and the root file
 * system below `/rootfs`. So it runs under AWS's init program and under ours alike.
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

/** What the boot ramdisk is made of. */
export type BootLayout = {
  /** `/init`: guest/boot-init, or the operator's. */
  readonly init: TreeEntry
  /** `bin/busybox`, for our init. */
  readonly system: FileTree
  readonly modules: FileTree
}

/** Gives the ramdisk that the kernel starts `/init` from. */
export function layOutBoot({ init, system, modules }: BootLayout): FileTree {
  return mergeTrees(
    system,
    modules,
    new Map<string, TreeEntry>([
      ['init', init],
      ['bin/sh', { kind: 'link', target: 'busybox' }],
      // The kernel opens it for /init before anything is mounted.
      ['dev/console', { kind: 'device', mode: 0o600, major: 5, minor: 1 }],
      ...emptyFolders(['proc', 'sys']),
    ]),
  )
}

/**
 * Gives the boot ramdisk for an init program of AWS's kind: it, and the driver that it loads when there is one. Such a
 * program needs nothing else.
 */
export function layOutForeignBoot({ init, nsm }: { init: TreeEntry; nsm: TreeEntry | null }): FileTree {
  return new Map<string, TreeEntry>([['init', init], ...(nsm === null ? [] : ([['nsm.ko', nsm]] as const))])
}

function emptyFolders(paths: readonly string[]): readonly (readonly [string, TreeEntry])[] {
  return paths.map((path) => [path, { kind: 'directory', mode: 0o755 }] as const)
}
