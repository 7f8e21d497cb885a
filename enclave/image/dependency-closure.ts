import { z } from 'zod'
import { BuildError, parsePins } from './build-error.ts'
import { type FileTree, textFile } from './file-tree.ts'
import type { NpmPackage } from './npm-packages.ts'

const take = z.array(z.string().min(1)).min(1)
const why = z.string().min(1)
const integrity = z.string().regex(/^sha512-[A-Za-z0-9+/]{86}==$/)

const listForm = z.strictObject({
  /** Node.js. The lock file pins only the package that would fetch Node.js, not Node.js itself. */
  runtime: z.strictObject({ name: z.string(), version: z.string(), integrity, why, take }),
  /**
   * All packages below `node_modules` in the image, with version and integrity from the lock file.
   */
  packages: z.array(z.strictObject({ name: z.string(), why, take })).min(1),
})

const lockForm = z.object({
  version: z.string(),
  lockfileVersion: z.literal(3),
  packages: z.record(
    z.string(),
    z.object({
      version: z.string().optional(),
      integrity: z.string().optional(),
      license: z.string().optional(),
      dependencies: z.record(z.string(), z.string()).optional(),
    }),
  ),
})

type ExplainedPackage = NpmPackage & { readonly why: string }

export type DependencyClosure = {
  readonly runtime: ExplainedPackage
  /** Sorted by name. */
  readonly packages: readonly ExplainedPackage[]
  /** The image's `package.json` and `package-lock.json`, with only these packages. */
  readonly manifests: FileTree
}

/**
 * Reads dependencies.json with the project's lock file. Refuses a list that lacks a dependency of a
 * listed package. Refuses a Node.js version that the project was not tested with. Optional
 * dependencies are used only if listed. Throws BuildError `pins_malformed` or `closure_incomplete`.
 */
export function parseDependencies(list: Uint8Array, lock: Uint8Array): DependencyClosure {
  const { runtime, packages } = parsePins('dependencies.json', listForm, list)
  const { version, packages: locked } = parsePins('package-lock.json', lockForm, lock)
  const tested = locked['node_modules/node']?.version
  if (tested !== runtime.version)
    throw new BuildError(
      'pins_malformed',
      `dependencies.json has Node.js ${runtime.version}, package-lock.json ${tested}`,
    )
  const explained = packages
    .map(({ name, ...rest }) => ({ name, ...rest, ...findLocked(locked, name) }))
    .sort((left, right) => (left.name < right.name ? -1 : 1))
  for (const { name, dependencies } of explained)
    for (const needed of Object.keys(dependencies ?? {}))
      if (!packages.some((other) => other.name === needed))
        throw new BuildError(
          'closure_incomplete',
          `${name} depends on ${needed}, which dependencies.json lacks`,
        )
  return { runtime, packages: explained, manifests: writeManifests(version, explained) }
}

type LockedPackage = {
  readonly version: string
  readonly integrity: string
  readonly license?: string | undefined
  readonly dependencies?: Readonly<Record<string, string>> | undefined
}

type Locked = z.infer<typeof lockForm>['packages']

function findLocked(locked: Locked, name: string): LockedPackage {
  const entry = locked[`node_modules/${name}`]
  if (entry?.version === undefined || !integrity.safeParse(entry.integrity).success)
    throw new BuildError(
      'pins_malformed',
      `package-lock.json has no version and SHA-512 of ${name}`,
    )
  const { version, license, dependencies } = entry
  return { version, integrity: entry.integrity ?? '', license, dependencies }
}

/** The part of the repository's `imports` that the enclave uses. */
const IMPORTS = { '#attestation/*': './attestation/*' }

/**
 * Every package is a direct dependency with an exact version, so npm cannot choose another version.
 */
function writeManifests(
  version: string,
  packages: readonly (LockedPackage & { name: string })[],
): FileTree {
  const head = { name: 'affidavit-enclave', version }
  const dependencies = Object.fromEntries(packages.map((entry) => [entry.name, entry.version]))
  const locked = packages.map(({ name, version, integrity, license, dependencies }) => [
    `node_modules/${name}`,
    { version, integrity, license, dependencies },
  ])
  const manifest = { ...head, private: true, type: 'module', imports: IMPORTS, dependencies }
  const lock = {
    ...head,
    lockfileVersion: 3,
    requires: true,
    packages: { '': { ...head, dependencies }, ...Object.fromEntries(locked) },
  }
  return new Map([
    ['package.json', textFile(`${JSON.stringify(manifest, null, 2)}\n`)],
    ['package-lock.json', textFile(`${JSON.stringify(lock, null, 2)}\n`)],
  ])
}
