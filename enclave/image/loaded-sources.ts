import { readFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path/posix'

/** An imported file cannot be read, or an import cannot be resolved. The message names the file. */
export class SourceError extends Error {
  override readonly name = 'SourceError'
}

/**
 * Returns the sorted paths of all project files that enclave/main.ts loads, directly or through
 * other files. `#attestation/…` names a file from `root`. `import type` loads no file. Packages are
 * not included (see dependency-closure.ts).
 * Throws SourceError for an `import()` whose path is not a literal. If a file is missing in the
 * image, the enclave fails to start, and runs no unmeasured code.
 */
export async function listLoadedSources(root: string): Promise<readonly string[]> {
  const found = new Set<string>()
  const visit = async (file: string): Promise<void> => {
    if (found.has(file)) return
    found.add(file)
    const source = await readFile(join(root, file), 'utf8').catch((error: unknown) => {
      throw new SourceError(
        `cannot read ${file}: ${error instanceof Error ? error.message : 'unknown'}`,
      )
    })
    const targets = listSpecifiers(file, source).flatMap((specifier) => {
      if (specifier.startsWith('#')) return [specifier.slice(1)]
      return specifier.startsWith('.') ? [normalize(join(dirname(file), specifier))] : []
    })
    await Promise.all(targets.map(visit))
  }
  await visit('enclave/main.ts')
  return [...found].sort()
}

/**
 * `import … from '…'`, `export … from '…'`, `import '…'` and `import('…')`, as our formatter writes
 * them.
 */
const STATEMENTS = [
  /^(?:import|export)\b(?!\s+type\b)[^'"`]*?\bfrom\s+'([^'\n]+)'/gm,
  /^import\s+'([^'\n]+)'/gm,
  /\bimport\(\s*'([^'\n]+)'\s*\)/g,
]
const COMPUTED_IMPORT = /\bimport\(\s*[^'\s]/

function listSpecifiers(file: string, source: string): readonly string[] {
  if (COMPUTED_IMPORT.test(source))
    throw new SourceError(`${file}: expected every import() to be of a literal`)
  return STATEMENTS.flatMap((statement) =>
    [...source.matchAll(statement)].map(([, specifier = '']) => specifier),
  )
}
