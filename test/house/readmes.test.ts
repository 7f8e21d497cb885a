import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listTracked, readTracked } from './tracked-files.ts'

const root = join(import.meta.dirname, '../..')

/** A README that is read in three minutes. */
const WORDS_MAX = 600

/** READMEs that may be longer, each with its reason. */
const LONGER: Readonly<Record<string, string>> = {
  'README.md': 'the front door of the repository is for everyone, and a test follows it',
  'docs/operating/README.md': "the table of contents of the operators' pages",
  'test/README.md': 'the matrix of promises and the tests that hold them',
  'test/vectors/README.md':
    'the format of the cases and of the programs under test, for writers of a second verifier',
}

/** The words of a page outside fenced code, the bars of tables included. */
function countWords(page: string): number {
  const prose = page.replace(/^ *(`{3,}|~{3,}).*?^ *\1/gms, '')
  return prose.split(/\s+/).filter((word) => word !== '').length
}

describe('READMEs', () => {
  const readmes = listTracked('README.md', '*/README.md')
  const wordsOf = (file: string) => countWords(readTracked(file))

  it(`every README has at most ${WORDS_MAX} words, except those with a named reason`, () => {
    const long = readmes.filter((file) => wordsOf(file) > WORDS_MAX)
    expect(readmes.length).toBeGreaterThan(60)
    expect(long.toSorted()).toEqual(Object.keys(LONGER).toSorted())
  })

  it('the files that hold promises, as test/README.md names them, exist', () => {
    const page = readFileSync(join(root, 'test/README.md'), 'utf8')
    const start = page.indexOf('## Which file holds which promise')
    const matrix = page.slice(start, page.indexOf('\n## ', start + 1))
    const named = [...matrix.matchAll(/`([\w./*-]+)`/g)].flatMap(([, name = '']) => name)
    expect(named.length).toBeGreaterThan(40)
    const cwd = join(root, 'test')
    expect(
      named.filter((name) => name !== 'test/' && globSync(name, { cwd }).length === 0),
    ).toEqual([])
  })
})
