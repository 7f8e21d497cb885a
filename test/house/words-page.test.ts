import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { TERMS, VERDICTS } from '#src/web/docs/words.ts'
import { readWordsPage, renderWords } from './words-page.ts'

const ROOT = join(import.meta.dirname, '../..')

describe('docs/words.md', () => {
  it('docs/words.md is what `npm run docs` writes', () => {
    expect(readWordsPage()).toBe(renderWords())
  })

  it('each term has one row, whose unused words are in backticks', () => {
    expect(new Set(TERMS.map(({ term }) => term)).size).toBe(TERMS.length)
    for (const { unused } of TERMS) expect(unused).toMatch(/^(?:`[^`]+`(?:, (?=`)|$))*$/)
  })

  it('the verdicts on the page are the four headlines of a report', () => {
    const headlines = readFileSync(join(ROOT, 'attestation/report/conclude.ts'), 'utf8')
    const words = VERDICTS.map(({ word }) => word).filter((word) => word !== 'not checked')
    for (const word of words) expect(headlines).toContain(word.toUpperCase())
    expect(words).toHaveLength(4)
  })
})
