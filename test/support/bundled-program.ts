import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { bundlePackage } from '#packages/bundle.ts'
import { PACKAGES } from '#packages/contents.ts'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Writes the program `affidavit` as its package has it, for tests that call it hundreds of times: it
 * starts in half of the sources' CPU time. The folder is within the checkout, so that the program
 * finds the npm packages.
 */
export async function writeBundledProgram(): Promise<{
  readonly program: string
  remove(): Promise<void>
}> {
  const contents = PACKAGES.find(({ name }) => name === 'affidavit')
  if (contents === undefined) throw new Error('expected a package affidavit')
  const caches = join(ROOT, 'node_modules/.cache/affidavit')
  await mkdir(caches, { recursive: true })
  const folder = await mkdtemp(join(caches, 'program-'))
  const { files, program } = await bundlePackage(ROOT, contents)
  await writeFile(join(folder, 'package.json'), '{"type":"module"}')
  for (const [path, entry] of files) {
    if (entry.kind !== 'file') throw new Error(`expected ${path} to be a file`)
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), entry.data)
  }
  return { program: join(folder, program), remove: () => rm(folder, { recursive: true }) }
}
