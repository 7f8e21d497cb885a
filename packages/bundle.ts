import { isBuiltin } from 'node:module'
import { join } from 'node:path'
import { relative } from 'node:path/posix'
import { build, type Metafile, type Plugin } from 'esbuild'
import { BuildError } from '#enclave/image/build-error.ts'
import type { FileTree, TreeEntry } from '#enclave/image/file-tree.ts'
import { NODE_VERSION_MIN, type PackageContents } from './contents.ts'

export type PackageBundle = {
  /** ES modules and their source maps, below `lib/` and `bin/`. */
  readonly files: FileTree
  /** The package's file for each subpath that other code imports. */
  readonly exports: ReadonlyMap<string, string>
  readonly program: string
  /**
   * Sources whose text is in the files, including sources from npm packages. Paths are from the
   * repository's root.
   */
  readonly sources: readonly string[]
  /** npm packages that the files import but do not contain, sorted. */
  readonly imported: readonly string[]
}

/**
 * esbuild converts newer syntax for these targets: the library is for browsers, the program for
 * Node.
 */
const LIBRARY_TARGET = ['es2022']
const PROGRAM_TARGET = [`node${NODE_VERSION_MIN}`]

/**
 * Bundles the JavaScript of a package. Library and program are bundled separately, because the
 * library imports no Node modules. Code that a command loads on demand stays in a separate file.
 * The same sources produce the same bytes in any folder. Throws BuildError `closure_incomplete` for
 * a package that is neither in the files nor among the dependencies, and for an unused dependency.
 */
export async function bundlePackage(
  root: string,
  contents: PackageContents,
): Promise<PackageBundle> {
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

/** Bundled CommonJS packages load Node modules with this function. */
const REQUIRE =
  "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"

/** zod's messages in fifty languages would be a fifth of a program. Only English is used. */
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
  // Source maps contain paths relative to this folder. The build writes no files into it.
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
    // Otherwise a symbolic link to the packages' folder would be replaced by its real path.
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

/**
 * Returns the npm packages that stay outside the files. An import of a part of a package counts as
 * an import of the package.
 */
function importsOf({ outputs }: Metafile): readonly string[] {
  return Object.values(outputs).flatMap(({ imports }) =>
    imports
      .filter(({ external, path }) => external === true && !isBuiltin(path))
      .map(({ path }) => path.split('/', path.startsWith('@') ? 2 : 1).join('/')),
  )
}

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
