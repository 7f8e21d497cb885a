import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { BuildError } from './build-error.ts'
import { keepPackage, type PackageSource } from './debian-packages.ts'
import { type FileTree, takeFiles } from './file-tree.ts'
import { runCommand } from './run-command.ts'
import { decodeTar } from './tar.ts'

export type NpmPackage = {
  readonly name: string
  readonly version: string
  /** Subresource integrity of the .tgz file, as in lock files: `sha512-` and base64. */
  readonly integrity: string
  /** Globs that select the package's files. */
  readonly take: readonly string[]
}

/** Size limit of an unpacked package, bytes. The largest package is Node.js. */
const NPM_PACKAGE_BYTES_MAX = 2 ** 29

/**
 * Returns the files of a package that match `take`, by their paths in the package. Runs no scripts
 * of the package. Throws BuildError.
 */
export async function openNpmPackage(pinned: NpmPackage, source: PackageSource): Promise<FileTree> {
  const archive = await obtainNpmPackage(pinned, source)
  const tree = decodeTar(gunzipSync(archive, { maxOutputLength: NPM_PACKAGE_BYTES_MAX }))
  return takeFiles(dropTopFolder(tree), { package: pinned.name, patterns: pinned.take })
}

/** Returns the file name that npm uses for a package. */
export function tarballNameOf({ name, version }: Pick<NpmPackage, 'name' | 'version'>): string {
  return `${name.replace(/^@/, '').replaceAll('/', '-')}-${version}.tgz`
}

async function obtainNpmPackage(pinned: NpmPackage, source: PackageSource): Promise<Uint8Array> {
  const path = join(source.folder ?? source.cache, tarballNameOf(pinned))
  const bytes = await readFile(path).catch(() => null)
  if (bytes !== null && isPinned(pinned, bytes)) return bytes
  if (source.folder !== null) {
    if (bytes === null) throw new BuildError('package_unavailable', `expected ${path}`)
    throw altered(pinned)
  }
  const fetched = await downloadTarball(pinned, source.cache)
  if (!isPinned(pinned, fetched)) throw altered(pinned)
  await keepPackage(path, fetched)
  return fetched
}

async function downloadTarball({ name, version }: NpmPackage, cache: string): Promise<Buffer> {
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'download-'))
  try {
    const words = [
      'pack',
      `${name}@${version}`,
      '--ignore-scripts',
      '--silent',
      '--pack-destination',
      folder,
    ]
    await runCommand({ file: 'npm', arguments: words, folder })
    const file = (await readdir(folder)).find((entry) => entry.endsWith('.tgz'))
    if (file === undefined)
      throw new BuildError('package_unavailable', `npm gave no file for ${name}@${version}`)
    return await readFile(join(folder, file))
  } catch (error) {
    if (error instanceof BuildError && error.code === 'command_failed')
      throw new BuildError(
        'package_unavailable',
        `${name}@${version} cannot be fetched. ${error.message}`,
      )
    throw error
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function isPinned({ integrity }: NpmPackage, bytes: Uint8Array): boolean {
  return `sha512-${createHash('sha512').update(bytes).digest('base64')}` === integrity
}

function altered(pinned: NpmPackage): BuildError {
  return new BuildError(
    'package_altered',
    `${tarballNameOf(pinned)}: expected the integrity ${pinned.integrity}`,
  )
}

/** All files of an npm archive are in one folder, usually `package`. */
function dropTopFolder(tree: FileTree): FileTree {
  return new Map([...tree].map(([path, entry]) => [path.slice(path.indexOf('/') + 1), entry]))
}
