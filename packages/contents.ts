/** What one package is made of. Paths are from the repository's root. */
export type PackageContents = {
  readonly name: string
  readonly description: string
  readonly keywords: readonly string[]
  /**
   * What others import: the subpath of the package, and the module behind it. No Node built-ins,
   * for they run in browsers too.
   */
  readonly library: readonly { readonly subpath: string; readonly module: string }[]
  /** The module of the program, which is called as the package is. */
  readonly program: string
  readonly readme: string
  /** Files that are in it as they are: where in the package, and where in the repository. */
  readonly files: Readonly<Record<string, string>>
  /** Whether it brings VERIFIER_FILE. */
  readonly bringsVerifier: boolean
  /**
   * npm packages that are installed beside this one. All others that it imports are in its files,
   * so that a program starts quickly, and needs no more than was tested with it.
   */
  readonly dependencies: Readonly<Record<string, Dependency>>
}

/** How an npm package is named in `package.json`. */
type Dependency = {
  /** Default: the range of the repository's own package.json. */
  readonly range?: string
  /** Used where somebody installed it, and never installed by itself. */
  readonly isOptional?: boolean
}

/**
 * The oldest Node.js that the packages run on: the oldest that all their dependencies name. The
 * first 20 in which modules behave as in 22.
 */
export const NODE_VERSION_MIN = '20.19.0'

/** The page that checks evidence, before data is put in: its SHA-256 is the one it is known by. */
export const VERIFIER_FILE = 'verify.html'

/** Files of a package beside its programs and licences. */
export function filesOf({ files, bringsVerifier }: PackageContents): readonly string[] {
  return [...Object.keys(files), ...(bringsVerifier ? [VERIFIER_FILE] : [])]
}

/** The packages that `npm run package` builds. */
export const PACKAGES: readonly PackageContents[] = [
  {
    name: 'affidavit',
    description:
      'Check signed evidence of model completions: the client, the library and the program',
    keywords: ['attestation', 'enclave', 'evidence', 'llm', 'nitro', 'transparency', 'verify'],
    library: [
      { subpath: '.', module: 'client/index.ts' },
      { subpath: './attestation', module: 'attestation/index.ts' },
    ],
    program: 'packages/affidavit/main.ts',
    readme: 'packages/affidavit/README.md',
    files: { 'expect.schema.json': 'client/expect.schema.json' },
    bringsVerifier: true,
    dependencies: {
      // The library's own: an application that has them too shares them, and their corrections.
      '@noble/curves': {},
      '@noble/hashes': {},
      hpke: {},
      // The program's, for audits: with a file of WebAssembly.
      'tiny-secp256k1': {},
    },
  },
  {
    name: 'affidavit-node',
    description: 'Serve the models of a local inference server to an Affidavit gateway',
    keywords: ['agent', 'gpu', 'inference', 'llm', 'node'],
    library: [],
    program: 'packages/affidavit-node/main.ts',
    readme: 'packages/affidavit-node/README.md',
    files: {},
    bringsVerifier: false,
    dependencies: {
      // With worker threads, native parts or programs of the system that they call.
      pino: {},
      'pino-pretty': { isOptional: true },
      systeminformation: {},
      // Its version 8 is for Node.js 22 and later; 7 has the same calls, and is for 20, too.
      undici: { range: '^7.30.0' },
      ws: {},
    },
  },
]
