import { join } from 'node:path'
import { BuildError } from './build-error.ts'
import type { FileTree, TreeEntry } from './file-tree.ts'
import { collectModules, layOutModules } from './kernel-modules.ts'
import { getEntry, type OpenedPackage, selectFiles } from './open-parts.ts'
import type { ImageOptions } from './options.ts'
import type { Pins } from './pins.ts'
import { layOutBoot, layOutForeignBoot } from './ramdisks.ts'
import { readInput } from './read-input.ts'

/** What an enclave boots with. */
export type BootParts = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  /** Names the kernel in the image's metadata. */
  readonly kernelVersion: string
  readonly ramdisk: FileTree
  /** What was taken of Debian's kernel package: kernel and modules. */
  readonly kernelFiles: FileTree
  /** Files of the operator's that are in it, by what they are. */
  readonly own: Readonly<Record<string, Uint8Array>>
}

/**
 * Gives kernel, command line and boot ramdisk: Debian's kernel with its modules, or the operator's, which must have built
 * in what it needs; our init script, or a program of AWS's kind. Throws BuildError.
 */
export async function collectBootParts(
  root: string,
  options: Pick<ImageOptions, 'kernel' | 'initFile' | 'nsmModuleFile'>,
  { kernel: pins, opened }: { readonly kernel: Pins['kernel']; readonly opened: readonly OpenedPackage[] },
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
    const [bytes, cmdlineBytes] = await Promise.all([readInput(kernel.file), readInput(kernel.cmdlineFile)])
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
  if (entry.kind !== 'file') throw new BuildError('package_incomplete', `expected ${path} to be a file`)
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
