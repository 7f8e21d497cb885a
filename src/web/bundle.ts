import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { BuildOptions, build, Plugin } from 'esbuild'

/** A file's name contains the digest of its content, so content under a name never changes. */
export type Asset = { readonly type: string; readonly text: string }

/** All files of the pages, and the files that each page loads first. */
export type PageBundle = {
  readonly assets: ReadonlyMap<string, Asset>
  /** A page first loads its script, the scripts that its script imports, and its style. */
  readonly pages: ReadonlyMap<PageName, PageAssets>
  /** Script and style for the saved copy of the page that checks evidence. */
  readonly saved: SavedAssets
}

export type SavedAssets = { readonly script: string; readonly style: string }

export type PageAssets = {
  readonly script: string
  /** Scripts that `script` imports when it starts. */
  readonly imports: readonly string[]
  readonly styles: readonly string[]
}

/** The script of each page starts in `<name>/start.tsx`. */
export const PAGES = ['home', 'verify', 'docs', 'console', 'log', 'completion', 'missing'] as const
export type PageName = (typeof PAGES)[number]

export const ASSETS_PATH = '/assets'

/**
 * Takes some hundred milliseconds. Starts a process that ends before the promise resolves. Throws
 * esbuild's error when the sources are broken.
 */
export async function bundlePages(): Promise<PageBundle> {
  const { build, stop } = await import('esbuild')
  try {
    const { outputFiles, metafile } = await build({
      ...BROWSER_OPTIONS,
      entryPoints: PAGES.map((name) => ({ in: startOf(name), out: name })),
      format: 'esm',
      splitting: true,
      entryNames: '[name]-[hash]',
      chunkNames: 'chunk-[hash]',
      assetNames: '[name]-[hash]',
      outdir: OUT,
    })
    const assets = new Map(
      outputFiles.map(({ path, text }) => [basename(path), { type: typeOf(path), text }]),
    )
    const pages = new Map(PAGES.map((name) => [name, findAssets(metafile, startOf(name))]))
    return { assets, pages, saved: (await buildSaved(build)).saved }
  } finally {
    await stop()
  }
}

/** Bundles the page that can be saved as one file. `sources`: relative to the repository's root. */
export async function bundleSaved(): Promise<{
  readonly saved: SavedAssets
  readonly sources: readonly string[]
}> {
  const { build, stop } = await import('esbuild')
  try {
    return await buildSaved(build)
  } finally {
    await stop()
  }
}

async function buildSaved(run: typeof build) {
  const { outputFiles, metafile } = await run({
    ...SCRIPT_OPTIONS,
    plugins: [ownText, withoutGateway],
    stdin: { contents: SAVED_ENTRY, resolveDir: ROOT },
    format: 'iife',
    outdir: OUT,
  })
  const textOf = (extension: string) =>
    outputFiles.find(({ path }) => path.endsWith(extension))?.text ?? ''
  return {
    saved: { script: textOf('.js'), style: textOf('.css') },
    sources: Object.keys(metafile.inputs).filter((path) => !/[:<]/.test(path)),
  }
}

const ROOT = join(import.meta.dirname, '../..')

/** An import with `?text` returns the text of a worker's script. */
const workerTexts: Plugin = {
  name: 'worker-texts',
  setup({ onResolve, onLoad, esbuild }) {
    onResolve({ filter: /\.ts\?text$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace(/\?text$/, '')),
      namespace: 'worker-text',
    }))
    onLoad({ filter: /.*/, namespace: 'worker-text' }, async ({ path }) => {
      const { outputFiles } = await esbuild.build({
        ...SCRIPT_OPTIONS,
        entryPoints: [path],
        format: 'iife',
      })
      return { contents: outputFiles[0]?.text ?? '', loader: 'text' }
    })
  },
}

/** Page and worker run the same script, so that the saved file contains shared code only once. */
const SAVED_ENTRY = `
if (globalThis.document === undefined) require('./src/web/verify/worker.ts')
else {
  require('./src/web/verify/worker.ts?text')
  require('./src/web/verify/start.tsx')
}`

/**
 * An import with `?text` returns the running script. The worker of a saved page runs this script
 * too.
 */
const ownText: Plugin = {
  name: 'own-text',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\.ts\?text$/ }, () => ({ path: 'script', namespace: 'own-text' }))
    onLoad({ filter: /.*/, namespace: 'own-text' }, () => ({
      contents: 'export default document.currentScript.textContent',
    }))
  },
}

/** Leaves out the modules that ask a gateway, since a saved page has no gateway. */
const withoutGateway: Plugin = {
  name: 'without-gateway',
  setup({ onLoad }) {
    onLoad({ filter: /\/(kit\/search-box\.tsx|verify\/development-policy\.ts)$/ }, () => ({
      contents:
        'export const SearchBox = () => null; export const takeDevelopmentPolicy = async () => {}',
      loader: 'js',
    }))
  },
}

const SCRIPT_OPTIONS = {
  absWorkingDir: ROOT,
  // With this option, the bundle does not depend on where packages and repository are stored.
  preserveSymlinks: true,
  tsconfigRaw: '{}',
  bundle: true,
  minify: true,
  platform: 'browser',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
  logLevel: 'silent',
  write: false,
  metafile: true,
} as const satisfies BuildOptions

const BROWSER_OPTIONS = {
  ...SCRIPT_OPTIONS,
  plugins: [workerTexts],
} satisfies BuildOptions

/** The bundler needs a folder here, but the bundled files stay in memory. */
const OUT = join(import.meta.dirname, 'out')

function startOf(name: PageName): string {
  return `src/web/${name}/start.tsx`
}

type Outputs = Readonly<
  Record<
    string,
    {
      readonly entryPoint?: string
      readonly cssBundle?: string
      readonly imports: readonly { readonly path: string; readonly kind: string }[]
    }
  >
>

function findAssets({ outputs }: { readonly outputs: Outputs }, start: string): PageAssets {
  const [path, output] =
    Object.entries(outputs).find(([, { entryPoint }]) => entryPoint === start) ?? []
  if (path === undefined || output === undefined) throw new Error(`expected ${start} to be bundled`)
  const found = new Set<string>()
  const follow = (from: string) => {
    for (const { path: to, kind } of outputs[from]?.imports ?? []) {
      if (kind !== 'import-statement' || found.has(to)) continue
      found.add(to)
      follow(to)
    }
  }
  follow(path)
  return {
    script: basename(path),
    imports: [...found].map((one) => basename(one)),
    styles: output.cssBundle === undefined ? [] : [basename(output.cssBundle)],
  }
}

function typeOf(path: string): string {
  return path.endsWith('.css') ? 'text/css; charset=utf-8' : 'text/javascript; charset=utf-8'
}

export const ICON = readFileSync(join(import.meta.dirname, 'icon.svg'), 'utf8')
