import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { parsePins } from './build-error.ts'
import { type DebianPackage, digestSha256, parsePackageList } from './debian-packages.ts'
import { type DependencyClosure, parseDependencies } from './dependency-closure.ts'

const kernelForm = z.strictObject({
  /** The kernel's command line. It is measured. */
  cmdline: z.string().regex(/^[!-~][ -~]{0,2046}$/),
  /** Modules that the boot ramdisk loads. Their dependencies are added automatically. */
  modules: z.array(z.strictObject({ name: z.string(), why: z.string().min(1) })),
})

/** All pinned input of an image. The sources are not pinned. */
export type Pins = {
  readonly packages: readonly DebianPackage[]
  readonly dependencies: DependencyClosure
  readonly kernel: Readonly<z.infer<typeof kernelForm>>
  /** SHA-256 (hex) of the files with the pins, by file name. */
  readonly digests: Readonly<Record<string, string>>
}

/** Relative to the project's root. */
export const PIN_FILES = {
  packages: 'enclave/image/packages.json',
  dependencies: 'enclave/image/dependencies.json',
  kernel: 'enclave/image/kernel.json',
  lock: 'package-lock.json',
} as const

/**
 * Reads the pins of the project at `root`. Throws BuildError `pins_malformed` or
 * `closure_incomplete`.
 */
export async function readPins(root: string): Promise<Pins> {
  const read = (path: string) => readFile(join(root, path))
  const [packages, dependencies, kernel, lock] = await Promise.all([
    read(PIN_FILES.packages),
    read(PIN_FILES.dependencies),
    read(PIN_FILES.kernel),
    read(PIN_FILES.lock),
  ])
  const files = [
    [PIN_FILES.packages, packages],
    [PIN_FILES.dependencies, dependencies],
    [PIN_FILES.kernel, kernel],
    [PIN_FILES.lock, lock],
  ] as const
  return {
    packages: parsePackageList(packages),
    dependencies: parseDependencies(dependencies, lock),
    kernel: parsePins('kernel.json', kernelForm, kernel),
    digests: Object.fromEntries(files.map(([path, bytes]) => [path, digestSha256(bytes)])),
  }
}
