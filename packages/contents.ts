/** Paths are from the repository's root. */
export type PackageContents = {
  readonly name: string
  readonly description: string
  readonly keywords: readonly string[]
  /**
   * The modules that other code imports, by subpath of the package. They run in browsers, so they
   * import no Node built-ins.
   */
  readonly library: readonly { readonly subpath: string; readonly module: string }[]
  /** The module of the program, which has the package's name. */
  readonly program: string
  readonly readme: string
  /** Files that are copied unchanged: the path in the package, and the path in the repository. */
  readonly files: Readonly<Record<string, string>>
  /** True if the package contains VERIFIER_FILE. */
  readonly bringsVerifier: boolean
  /**
   * npm packages that npm installs with this package. All other imports are in the files of this
   * package, so that a program starts quickly and runs exactly the tested code.
   */
  readonly dependencies: Readonly<Record<string, Dependency>>
}

type Dependency = {
  /** Default: the range in the repository's own package.json. */
  readonly range?: string
  /** True if the package is used only when the user has installed it. */
  readonly isOptional?: boolean
}

/**
 * The oldest Node.js that the packages and their dependencies support. It is the first release of
 * version 20 that loads modules as version 22 does.
 */
export const NODE_VERSION_MIN = '20.19.0'

/** The page that checks evidence. Pages with saved evidence name the SHA-256 of this file. */
export const VERIFIER_FILE = 'verify.html'

/** Files of a package in addition to its programs and licences. */
export function filesOf({ files, bringsVerifier }: PackageContents): readonly string[] {
  return [...Object.keys(files), ...(bringsVerifier ? [VERIFIER_FILE] : [])]
}

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
    files: { 'policy.schema.json': 'client/policy.schema.json' },
    bringsVerifier: true,
    dependencies: {
      // For the library. An application and the library share one copy of these packages.
      '@noble/curves': {},
      '@noble/hashes': {},
      hpke: {},
      // The program's audits use this package, which contains a WebAssembly file.
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
      // These packages have worker threads or native parts, or call programs of the system.
      'pino-pretty': { isOptional: true },
      systeminformation: {},
      // Version 8 needs Node.js 22. Version 7 has the same functions, and supports Node.js 20 too.
      undici: { range: '^7.30.0' },
      ws: {},
    },
  },
]
