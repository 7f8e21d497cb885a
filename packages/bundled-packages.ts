import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { BuildError } from '#enclave/image/build-error.ts'

/** An npm package whose text is in our files. */
export type BundledPackage = {
  readonly name: string
  readonly version: string
  /** SPDX expression. */
  readonly license: string
  /** SHA-512 of the package's tarball, hex. Null if package-lock.json has no SHA-512. */
  readonly sha512: string | null
  /** The package's LICENSE and NOTICE files. Its licence requires us to distribute them. */
  readonly notices: readonly string[]
}

const manifestSchema = z.object({
  name: z.string().min(1),
  version: z.string().min(1),
  license: z.string().min(1),
})
const lockSchema = z.object({
  packages: z.record(z.string(), z.object({ integrity: z.string().optional() })),
})

/**
 * Returns the npm packages of the given sources (paths from the root), sorted by name and version.
 * Throws BuildError `package_incomplete` for a package that does not state its licence.
 */
export async function listBundledPackages(
  root: string,
  sources: readonly string[],
): Promise<readonly BundledPackage[]> {
  const folders = new Set(sources.flatMap((path) => packageFolderOf(path) ?? []))
  const { packages: locked } = lockSchema.parse(
    JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')),
  )
  const found = await Promise.all(
    [...folders].map(async (folder) => {
      const manifest = await readManifest(root, folder)
      const notices = await readNotices(root, folder)
      return { ...manifest, sha512: hexOf(locked[folder]?.integrity), notices }
    }),
  )
  return found.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))
}

export function formatNotices(packages: readonly BundledPackage[]): string {
  const parts = packages.map(({ name, version, license, notices }) =>
    [`${name} ${version} (${license})`, ...notices].join('\n\n'),
  )
  return [
    'The files of this package hold parts of these packages, each under its own licence.',
    ...parts,
  ]
    .join(`\n\n${'-'.repeat(80)}\n\n`)
    .concat('\n')
}

/** `node_modules/a/node_modules/@b/c/lib/x.js` → `node_modules/a/node_modules/@b/c`. */
function packageFolderOf(path: string): string | null {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0] ?? null
}

async function readManifest(root: string, folder: string) {
  const manifest = manifestSchema.safeParse(
    JSON.parse(await readFile(join(root, folder, 'package.json'), 'utf8')),
  )
  if (manifest.success) return manifest.data
  throw new BuildError('package_incomplete', `${folder}: expected a name, a version and a licence`)
}

async function readNotices(root: string, folder: string): Promise<readonly string[]> {
  const names = (await readdir(join(root, folder))).filter((name) =>
    /^(licen[cs]e|notice)([.-].*)?$/i.test(name),
  )
  const texts = await Promise.all(
    names.toSorted().map((name) => readFile(join(root, folder, name), 'utf8')),
  )
  return texts.map((text) => text.replaceAll('\r\n', '\n').trim())
}

/** `integrity` has npm's form, `sha512-BASE64`. */
function hexOf(integrity: string | undefined): string | null {
  const [, base64] = /^sha512-([A-Za-z0-9+/]{86}==)$/.exec(integrity ?? '') ?? []
  return base64 === undefined ? null : Buffer.from(base64, 'base64').toString('hex')
}

function keyOf({ name, version }: { readonly name: string; readonly version: string }): string {
  return `${name}\0${version}`
}
