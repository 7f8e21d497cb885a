import { isBuiltin } from 'node:module'
import { join } from 'node:path'
import { relative } from 'node:path/posix'
import { build, type Metafile, type Plugin } from 'esbuild'
import { BuildError } from '../enclave/image/build-error.ts'
import type { FileTree, TreeEntry } from '../enclave/image/file-tree.ts'
import { NODE_VERSION_MIN, type PackageContents } from './contents.ts'

/** JavaScript of a package. */
export type Bundle = {
  /** ES modules and their source maps, below `lib/` and `bin/`. */
  readonly files: FileTree
  /** File of the package for each subpath that others import. */
  readonly exports: ReadonlyMap<string, string>
  readonly program: string
  /** Sources of which something is in the files, npm's too, from the repository's root. */
  readonly sources: readonly string[]
  /** npm packages that the files import, and do not hold; sorted. */
  readonly imported: readonly string[]
}

/** Newer syntax is written in older words: for browsers the library, for Node the program. */
const LIBRARY_TARGET = ['es2022']
const PROGRAM_TARGET = [`node${NODE_VERSION_MIN}`]

/**
 * Makes the JavaScript of a package, library and program apart: the one imports nothing of Node.
 * What a command loads when it is called stays a file of its own. The same sources give the same
 * bytes wherever they are. Throws BuildError `closure_incomplete` for a package that is neither in
 * the files nor among the dependencies, or a dependency that nothing imports.
 */
export async function bundlePackage(root: string, contents: PackageContents): Promise<Bundle> {
  const entries = contents.library.map(({ subpath, module }) => ({
    name: subpath === '.' ? 'index' : subpath.replace(/^\.\//, ''),
    subpath,
    module,
  }))
  const parts = await Promise.all([
    ...(entries.length === 0
      ? []
      : [runEsbuild(root, { contents, folder: 'lib', modules: entries, isProgram: false })]),
    runEsbuild(root, {
      contents,
      folder: 'bin',
      modules: [{ name: contents.name, module: contents.program }],
      isProgram: true,
    }),
  ])
  const imported = [...new Set(parts.flatMap((part) => importsOf(part.metafile)))].sort()
  checkDependencies(contents, imported)
  const program = `bin/${contents.name}.js`
  const files = new Map(parts.flatMap((part) => part.files))
  return {
    files: new Map(
      [...files].map(([path, entry]) => [path, path === program ? runnable(entry) : entry]),
    ),
    exports: new Map(entries.map(({ subpath, name }) => [subpath, `lib/${name}.js`])),
    program,
    sources: [...new Set(parts.flatMap((part) => sourcesOf(part.metafile)))].sort(),
    imported,
  }
}

/** What CommonJS packages in the files ask for Node's own modules with. */
const REQUIRE =
  "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"

/** zod brings its messages in fifty languages, a fifth of a program. English is the one in use. */
const ENGLISH_ALONE: Plugin = {
  name: 'english-alone',
  setup: ({ onLoad }) =>
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: "export { default as en } from './en.js'",
    })),
}

type Part = {
  readonly files: readonly (readonly [string, TreeEntry])[]
  readonly metafile: Metafile
}

async function runEsbuild(
  root: string,
  part: {
    readonly contents: PackageContents
    readonly folder: 'lib' | 'bin'
    readonly modules: readonly { readonly name: string; readonly module: string }[]
    readonly isProgram: boolean
  },
): Promise<Part> {
  const { contents, folder, modules, isProgram } = part
  // Never written: maps name sources relative to it, and it is the same distance from them always.
  const outdir = join(root, folder)
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: modules.map(({ name, module }) => ({ in: join(root, module), out: name })),
    outdir,
    write: false,
    metafile: true,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: isProgram ? 'node' : 'neutral',
    target: isProgram ? PROGRAM_TARGET : LIBRARY_TARGET,
    // A folder of packages that is linked to would otherwise be named where it really is.
    preserveSymlinks: true,
    tsconfigRaw: '{}',
    external: Object.keys(contents.dependencies),
    plugins: [ENGLISH_ALONE],
    ...(isProgram ? { banner: { js: REQUIRE } } : {}),
    chunkNames: 'chunk-[hash]',
    sourcemap: 'linked',
    sourcesContent: true,
    charset: 'utf8',
    logLevel: 'silent',
  }).catch((error: unknown) => {
    const message = error instanceof Error ? error.message : 'unknown fault'
    throw new BuildError('command_failed', `esbuild: ${message}`)
  })
  const files = outputFiles.map(
    ({ path, contents: data }) =>
      [relative(root, path), { kind: 'file', mode: 0o644, data }] as const,
  )
  return { files, metafile }
}

function runnable(entry: TreeEntry): TreeEntry {
  return entry.kind === 'file' ? { ...entry, mode: 0o755 } : entry
}

/** npm packages that stay outside, by name, whatever part of them is imported. */
function importsOf({ outputs }: Metafile): readonly string[] {
  return Object.values(outputs).flatMap(({ imports }) =>
    imports
      .filter(({ external, path }) => external === true && !isBuiltin(path))
      .map(({ path }) => path.split('/', path.startsWith('@') ? 2 : 1).join('/')),
  )
}

/** Sources of which something is left. */
function sourcesOf({ outputs }: Metafile): readonly string[] {
  return Object.values(outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([path, { bytesInOutput }]) =>
      bytesInOutput > 0 ? [path] : [],
    ),
  )
}

function checkDependencies(contents: PackageContents, imported: readonly string[]): void {
  const named = Object.keys(contents.dependencies)
  const missing = imported.filter((name) => !named.includes(name))
  const unused = named.filter((name) => !imported.includes(name))
  if (missing.length + unused.length === 0) return
  const faults = [
    ...missing.map((name) => `${name} is imported and not among the dependencies`),
    ...unused.map((name) => `${name} is among the dependencies and not imported`),
  ]
  throw new BuildError('closure_incomplete', `${contents.name}: ${faults.join('; ')}`)
}
