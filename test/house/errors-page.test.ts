import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const [, calls = '', files = ''] = readFileSync(join(ROOT, 'docs/errors.md'), 'utf8').split(/^## /m)

/** The first cells of a table. */
function firstCells(section: string): readonly string[] {
  return [...section.matchAll(/^\| ([^|]*) \|/gm)].map(([, cell = '']) => cell.trim()).slice(2)
}

function sourcesBelow(folder: string): string {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(ROOT, folder, name), 'utf8'))
    .join('\n')
}

describe('docs/errors.md', () => {
  it('every code of an error on the page is one that the client, the proxy or the gateway gives', () => {
    const codes = firstCells(calls).flatMap((cell) => cell.match(/(?<=`)[a-z_]+(?=`)/g) ?? [])
    expect(codes.length).toBeGreaterThan(15)
    const sources = ['client', 'src', 'attestation'].map(sourcesBelow).join('\n')
    const isGiven = (code: string) => new RegExp(`'${code}'|^ +${code}:`, 'm').test(sources)
    expect(codes.filter((code) => !isGiven(code))).toEqual([])
  })

  it('every verdict on the page is a headline of `affidavit verify`', () => {
    const headlines = readFileSync(join(ROOT, 'attestation/report/conclude.ts'), 'utf8')
    const verdicts = firstCells(files).flatMap(
      (cell) => cell.match(/[A-Z]{2,}(?: [A-Z]{2,})*/g) ?? [],
    )
    expect(verdicts).toContain('NOT ACCEPTED')
    expect(verdicts.filter((verdict) => !headlines.includes(verdict))).toEqual([])
  })
})
