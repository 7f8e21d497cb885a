import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dirname, normalize, relative } from 'node:path/posix'
import { type FileTree, textFile } from '#enclave/image/file-tree.ts'
import { runCommand } from '#enclave/image/run-command.ts'

const TYPES_FOLDER = 'types'

export type Declarations = {
  readonly files: FileTree
  /** The declaration file of each module, by the module's path from the repository's root. */
  readonly fileOf: ReadonlyMap<string, string>
}

/**
 * Makes the declarations of modules and of all their imports. The compiler reads
 * packages/tsconfig.json, and so allows only the JavaScript of the oldest supported Node.js. Throws
 * BuildError `command_failed`.
 */
export async function declareModules(
  root: string,
  modules: readonly string[],
): Promise<Declarations> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-types-'))
  try {
    await runCommand({
      file: process.execPath,
      arguments: [
        join(root, 'node_modules/typescript/bin/tsc'),
        '-p',
        join(root, 'packages/tsconfig.json'),
        '--noEmit',
        'false',
        '--declaration',
        '--emitDeclarationOnly',
        '--outDir',
        folder,
      ],
      folder: root,
    })
    const files = new Map<string, string>()
    for (const module of modules) await addDeclaration(files, folder, declarationOf(module))
    return {
      files: new Map([...files].map(([path, text]) => [`${TYPES_FOLDER}/${path}`, textFile(text)])),
      fileOf: new Map(
        modules.map((module) => [module, `${TYPES_FOLDER}/${declarationOf(module)}`]),
      ),
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Adds a declaration, and all declarations that it imports. */
async function addDeclaration(
  files: Map<string, string>,
  folder: string,
  path: string,
): Promise<void> {
  if (files.has(path)) return
  const text = await readFile(join(folder, path), 'utf8')
  // With `.js`, an import of `x.js` finds `x.d.ts` under all compiler settings.
  const targetOf = (specifier: string) =>
    specifier.startsWith('#') ? specifier.slice(1) : normalize(join(dirname(path), specifier))
  const toPackaged = (specifier: string) => {
    const target = relative(dirname(path), targetOf(specifier))
    return `${target.startsWith('.') ? '' : './'}${target}.js`
  }
  files.set(
    path,
    text.replaceAll(
      IMPORT,
      (_, before, specifier, after) => before + toPackaged(specifier) + after,
    ),
  )
  for (const [, , specifier = ''] of text.matchAll(IMPORT))
    await addDeclaration(files, folder, `${targetOf(specifier)}.d.ts`)
}

/** `from './x.ts'`, `import './x.ts'`, `import('#attestation/x.ts')`. */
const IMPORT = /(\b(?:from |import[ (])['"])((?:\.\.?\/|#)[^'"\n]+)\.ts(['"])/g

function declarationOf(module: string): string {
  return module.replace(/\.ts$/, '.d.ts')
}
