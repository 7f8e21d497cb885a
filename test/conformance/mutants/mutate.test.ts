import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { FALLBACKS, mutate, PATCHES } from './mutate.ts'

const ROOT = join(import.meta.dirname, '../../..')

/** The mutants themselves are slow tests: a source that changed shows here within seconds. */
describe('the texts to replace in the sources of the checks', () => {
  const files = new Set([...Object.keys(PATCHES), ...FALLBACKS.map(({ file }) => file)])

  it.each([...files])('%s has each of them', async (file) => {
    const source = await readFile(join(ROOT, file), 'utf8')
    expect(mutate(file, source)).not.toBe(source)
  })

  it('a missing text is an error', async () => {
    const [file = ''] = Object.keys(PATCHES)
    expect(() => mutate(file, 'export {}')).toThrow(`${file}: expected 1 of`)
  })
})
