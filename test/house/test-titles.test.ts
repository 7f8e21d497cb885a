import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

/** First words of what is no sentence without the `describe` that it stands in. */
const FRAGMENTS = new Set(
  'is are was were has have had does do can may must that which whose who with without of and or as in at by to from than'.split(
    ' ',
  ),
)
const WORDS_MIN = 4

/** The titles of a file's tests, as they are written. */
function titlesOf(text: string): readonly string[] {
  const literal = /('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)/.source
  const call = new RegExp(
    `^\\s*it(?:\\.runIf\\([\\w.]+\\))?\\(\\s*(?:\\w+\\.title\\(\\s*)?${literal}`,
    'gm',
  )
  const table = new RegExp(
    `\\](?: as const)?\\)?,?\\s*\\)\\(\\s*(?:\\w+\\.title\\(\\s*)?${literal}`,
    'gm',
  )
  return [call, table].flatMap((pattern) =>
    [...text.matchAll(pattern)].flatMap(({ index, 1: title = '' }) =>
      isOfDescribe(text.slice(0, index)) ? [] : [title.slice(1, -1)],
    ),
  )
}

/** Whether the table that a title follows, if it follows one, is of a `describe`. */
function isOfDescribe(before: string): boolean {
  return (
    before.lastIndexOf('describe.each') >
    Math.max(before.lastIndexOf('it.each'), before.lastIndexOf(' it('))
  )
}

function isFragment(title: string): boolean {
  // What is filled in counts for two words.
  const words = title.replaceAll(/%\w|\$\w+/g, '… …').split(/\s+/)
  return words.length < WORDS_MIN || FRAGMENTS.has(words[0] ?? '')
}

it('the title of every test is a sentence that is understood by itself', () => {
  const files = globSync('test/**/*.test.{ts,tsx}', { cwd: ROOT })
  const titles = files.flatMap((file) =>
    titlesOf(readFileSync(join(ROOT, file), 'utf8')).map((title) => ({ file, title })),
  )
  expect(titles.length).toBeGreaterThan(3_000)
  const fragments = titles.filter(({ title }) => isFragment(title))
  expect(fragments.map(({ file, title }) => `${file}: ${title}`)).toEqual([])
})
