import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { BuildError, parsePins } from './build-error.ts'
import { type FileTree, takeFiles } from './file-tree.ts'
import { runCommand } from './run-command.ts'
import { decodeTar } from './tar.ts'

const packageForm = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9.+-]{1,80}$/),
  /**
   * Name of a package, such as linux-image-cloud-amd64, that always depends on the newest package
   * of this kind. When the pin is renewed, `name` becomes the name of this newest package.
   */
  follows: z.string().optional(),
  version: z.string().regex(/^[0-9A-Za-z.+:~-]{1,80}$/),
  architecture: z.enum(['amd64', 'all']),
  /** SHA-256 of the .deb file. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  size: z.int().positive(),
  /**
   * The ramdisks that contain the package's files. `kernel`: the package provides the kernel and
   * its modules.
   */
  into: z.array(z.enum(['application', 'boot', 'kernel'])).min(1),
  why: z.string().min(1),
  /** Globs that select the package's files. */
  take: z.array(z.string().min(1)).min(1),
})

export type DebianPackage = Readonly<z.infer<typeof packageForm>>

export type PackageSource = {
  /**
   * A folder with all package files. Null: files are fetched from the operating system's mirrors.
   */
  readonly folder: string | null
  /** Folder in which fetched files are kept for the next build. */
  readonly cache: string
}

/** Reads packages.json. Throws BuildError `pins_malformed`. */
export function parsePackageList(bytes: Uint8Array): readonly DebianPackage[] {
  return parsePins('packages.json', z.array(packageForm).min(1), bytes)
}

/** Returns the files of a package that match `take`. Throws BuildError. */
export async function openDebianPackage(
  pinned: DebianPackage,
  source: PackageSource,
): Promise<FileTree> {
  const path = await obtainDebianPackage(pinned, source)
  const tree = decodeTar(
    await runCommand({ file: 'dpkg-deb', arguments: ['--fsys-tarfile', path] }),
  )
  return takeFiles(tree, { package: pinned.name, patterns: pinned.take })
}

/**
 * Returns the path of a package file with the pinned bytes, from the source's folder, the cache or
 * the mirrors. Throws BuildError `package_unavailable` or `package_altered`.
 */
async function obtainDebianPackage(pinned: DebianPackage, source: PackageSource): Promise<string> {
  const path = join(source.folder ?? source.cache, fileNameOf(pinned))
  const bytes = await readFile(path).catch(() => null)
  if (bytes !== null && isPinned(pinned, bytes)) return path
  if (source.folder !== null) {
    if (bytes === null) throw new BuildError('package_unavailable', `expected ${path}`)
    throw altered(pinned, bytes)
  }
  const fetched = await downloadPackage(pinned, source.cache)
  if (!isPinned(pinned, fetched)) throw altered(pinned, fetched)
  await keepPackage(path, fetched)
  return path
}

/**
 * Fetches a package into an empty folder and returns its bytes. The default of `version` is the
 * newest version on the mirrors.
 */
export async function downloadPackage(
  wanted: { readonly name: string; readonly version?: string },
  cache: string,
): Promise<Buffer> {
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'download-'))
  const what = wanted.version === undefined ? wanted.name : `${wanted.name}=${wanted.version}`
  try {
    await runCommand({ file: 'apt-get', arguments: ['--quiet', 'download', what], folder })
    const [file] = await readdir(folder)
    if (file === undefined)
      throw new BuildError('package_unavailable', `apt-get gave no file for ${what}`)
    return await readFile(join(folder, file))
  } catch (error) {
    if (error instanceof BuildError && error.code === 'command_failed')
      throw unavailable(what, error.message)
    throw error
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Writes a fetched package atomically, because other builds may use the same cache. */
export async function keepPackage(path: string, bytes: Uint8Array): Promise<void> {
  const part = `${path}.${process.pid}.part`
  await writeFile(part, bytes)
  await rename(part, path)
}

/** Returns apt-get's file name for a package. The colon of the epoch becomes %3a. */
export function fileNameOf({
  name,
  version,
  architecture,
}: Pick<DebianPackage, 'name' | 'version' | 'architecture'>): string {
  return `${name}_${version.replaceAll(':', '%3a')}_${architecture}.deb`
}

function isPinned({ size, sha256 }: DebianPackage, bytes: Uint8Array): boolean {
  return bytes.length === size && digestSha256(bytes) === sha256
}

/** Hex. */
export function digestSha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function altered(pinned: DebianPackage, bytes: Uint8Array): BuildError {
  return new BuildError(
    'package_altered',
    `${fileNameOf(pinned)}: expected ${pinned.size} bytes with SHA-256 ${pinned.sha256}, ` +
      `got ${bytes.length} with ${digestSha256(bytes)}`,
  )
}

function unavailable(what: string, said: string): BuildError {
  return new BuildError(
    'package_unavailable',
    `${what} cannot be fetched. When the version has left the mirrors (after "apt-get update"): ` +
      "get the file from Debian's snapshot archive and give its folder with --packages, " +
      `or renew the pins with --update-packages, which changes the measurements. ${said}`,
  )
}
