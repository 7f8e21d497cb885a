import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { BuildError } from '#enclave/image/build-error.ts'
import { filesOf, NODE_VERSION_MIN, type PackageContents } from './contents.ts'

const rangesSchema = z.record(z.string(), z.string())
const projectSchema = z.object({
  version: z.string(),
  license: z.string(),
  dependencies: rangesSchema,
  optionalDependencies: rangesSchema,
})

/** The members of the repository's package.json that the packages share. */
export type Project = z.output<typeof projectSchema>

export async function readProject(root: string): Promise<Project> {
  return projectSchema.parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
}

/** The paths of a package's parts, relative to its folder. */
type Layout = {
  readonly program: string
  readonly exports: readonly {
    readonly subpath: string
    readonly file: string
    readonly types: string
  }[]
}

/** Returns the version ranges of the npm packages that npm installs with ours, sorted by name. */
export function rangesOf(
  { dependencies }: Pick<PackageContents, 'dependencies'>,
  project: Project,
  { isOptional }: { readonly isOptional: boolean },
): Readonly<Record<string, string>> {
  const known = { ...project.optionalDependencies, ...project.dependencies }
  const wanted = Object.entries(dependencies)
    .filter(([, dependency]) => (dependency.isOptional ?? false) === isOptional)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
  return Object.fromEntries(
    wanted.map(([name, { range = known[name] }]) => {
      if (range !== undefined) return [name, range]
      throw new BuildError('closure_incomplete', `package.json has no range of ${name}`)
    }),
  )
}

/**
 * Returns the package.json of a package. `commit` is null if the sources differ from the commit.
 */
export function writeManifest(
  contents: PackageContents,
  project: Project,
  layout: Layout & { readonly commit: string | null },
): string {
  const optional = rangesOf(contents, project, { isOptional: true })
  const subpaths = layout.exports.map(({ subpath, file, types }) => [
    subpath,
    { types: `./${types}`, default: `./${file}` },
  ])
  const main = layout.exports.find(({ subpath }) => subpath === '.')
  const manifest = {
    name: contents.name,
    version: project.version,
    description: contents.description,
    keywords: contents.keywords,
    license: project.license,
    ...(layout.commit === null ? {} : { gitHead: layout.commit }),
    type: 'module',
    engines: { node: `>=${NODE_VERSION_MIN}` },
    bin: { [contents.name]: layout.program },
    ...(main === undefined ? {} : { main: `./${main.file}`, types: `./${main.types}` }),
    exports: {
      ...Object.fromEntries(subpaths),
      ...Object.fromEntries(
        [...filesOf(contents), 'package.json'].map((path) => [`./${path}`, `./${path}`]),
      ),
    },
    // The library's modules have no side effects, so bundlers can drop unused modules.
    sideEffects: ['./bin/*.js'],
    files: [
      'bin',
      ...(layout.exports.length === 0 ? [] : ['lib', 'types']),
      ...filesOf(contents),
      ...LICENCES,
    ],
    dependencies: rangesOf(contents, project, { isOptional: false }),
    ...(Object.keys(optional).length === 0
      ? {}
      : {
          peerDependencies: optional,
          peerDependenciesMeta: Object.fromEntries(
            Object.keys(optional).map((name) => [name, { optional: true }]),
          ),
        }),
  }
  return `${JSON.stringify(manifest, null, 2)}\n`
}

/** npm adds README.md, LICENSE and package.json automatically. */
const LICENCES = ['NOTICE', 'THIRD-PARTY-LICENSES.txt']
