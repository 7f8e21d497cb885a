import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { BUILT_BY } from '../../packages/build-packages.ts'
import { listImports } from '../house/import-rules.ts'

const ROOT = join(import.meta.dirname, '../..')

function listLoaded(main: string): readonly string[] {
  const found = new Set<string>()
  const visit = (file: string) => {
    if (found.has(file)) return
    found.add(file)
    for (const { specifier, typeOnly } of listImports(file, readFileSync(join(ROOT, file), 'utf8')))
      if (specifier.startsWith('.') && !typeOnly) visit(join(dirname(file), specifier))
  }
  visit(main)
  return [...found]
}

it('a changed file of the program that builds the packages counts as uncommitted', () => {
  const loaded = listLoaded('packages/main.ts')
  expect(loaded).toContain('src/web/page.ts')
  const isCovered = (file: string) => BUILT_BY.some((path) => file.startsWith(`${path}/`))
  expect(loaded.filter((file) => !isCovered(file))).toEqual([])
})
