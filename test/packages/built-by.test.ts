import { join } from 'node:path'
import { expect, it } from 'vitest'
import { BUILT_BY } from '#packages/build-packages.ts'
import { listLoadedFiles } from '../house/import-rules.ts'

const ROOT = join(import.meta.dirname, '../..')

it('a changed file of the program that builds the packages counts as uncommitted', () => {
  const loaded = listLoadedFiles(ROOT, 'packages/main.ts')
  expect(loaded).toContain('src/web/page.ts')
  const isCovered = (file: string) => BUILT_BY.some((path) => file.startsWith(`${path}/`))
  expect(loaded.filter((file) => !isCovered(file))).toEqual([])
})
