import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import {
  COMMENT_PHRASES,
  findPhrases,
  listComments,
  listTexts,
  PHRASES,
  type Phrase,
  READ_BY_USERS,
  type UserText,
} from './plain-words.ts'

const root = join(import.meta.dirname, '../..')
const isIn = (file: string, paths: readonly string[]): boolean =>
  paths.some((path) => file === path || file.startsWith(`${path}/`))
const tracked = execFileSync(
  'git',
  ['ls-files', '--cached', '--others', '--exclude-standard', '*.ts', '*.tsx', '*.md'],
  { cwd: root, encoding: 'utf8' },
).split('\n')
const files = tracked
  .filter((file) => isIn(file, READ_BY_USERS))
  // The READMEs of rooms are for developers.
  .filter((file) => !file.endsWith('/README.md'))

function faultsOf(texts: readonly UserText[], phrases: readonly Phrase[]): readonly string[] {
  return texts.flatMap(({ file, line, text }) =>
    findPhrases(text, phrases).map(
      ({ phrase, said }) => `${file}:${line}: "${said}", better: ${phrase.instead}: ${text}`,
    ),
  )
}

it('every text that users read is in plain words', () => {
  const texts = files.flatMap((file) => listTexts(file, readFileSync(join(root, file), 'utf8')))
  expect(texts.length).toBeGreaterThan(3_000)
  expect(faultsOf(texts, PHRASES)).toEqual([])
})

it('every comment is in plain words', () => {
  const sources = tracked.filter((file) => /\.tsx?$/.test(file))
  const comments = sources.flatMap((file) =>
    listComments(file, readFileSync(join(root, file), 'utf8')),
  )
  expect(comments.length).toBeGreaterThan(10_000)
  expect(faultsOf(comments, COMMENT_PHRASES)).toEqual([])
})

it('every README is in plain words', () => {
  const readmes = tracked.filter((file) => /(^|\/)README\.md$/.test(file))
  const texts = readmes.flatMap((file) => listTexts(file, readFileSync(join(root, file), 'utf8')))
  expect(texts.length).toBeGreaterThan(1_000)
  expect(faultsOf(texts, COMMENT_PHRASES)).toEqual([])
})

it('comments are found, those of several lines as one text', () => {
  const source = '/**\n * A b\n * `c` d. */\n// e\n// f\nconst a = "// no" // g'
  expect(listComments('a.ts', source)).toEqual([
    { file: 'a.ts', line: 1, text: 'A b … d.' },
    { file: 'a.ts', line: 4, text: 'e f' },
    { file: 'a.ts', line: 6, text: 'g' },
  ])
})

it.each([
  ['There is none: nothing but the limits bounds you.', ['there is none', 'bounds you']],
  ['The time is none.', ['is none']],
  ['What those show is not shown.', ['what those show']],
  ['Whoever has its address needs no key', ['whoever']],
  ['The gateway does not look for it any more, until it is added.', ['any more']],
  ['Nothing of it bounds calls', ['nothing of', 'bounds you']],
  ['Read all of it.', ['of it']],
  ['The nonce is no hex.', ['is no …']],
  ['kept for good; nobody is told', ['nobody', 'for good', 'told']],
])('the text "%s" is refused', (text, names) => {
  expect(findPhrases(text).map(({ phrase }) => phrase.name)).toEqual(names)
})

it.each([
  'There is no such image, or it has expired',
  'This key is no longer valid',
  'An erased part of its content is not shown.',
  'The gateway cannot store any more images now',
])('the text "%s" is accepted', (text) => {
  expect(findPhrases(text)).toEqual([])
})

it('each phrase has a name of its own', () => {
  expect(new Set(PHRASES.map(({ name }) => name)).size).toBe(PHRASES.length)
})

it.each([
  ['a.ts', "throw new Error('a b')", ['1: a b']],
  ['a.ts', `const a =\n  \`a \u0024{b} c\``, ['2: a … c']],
  ['a.ts', "f('a is ' +\n  'none.')", ['1: a is none.']],
  ['a.ts', "import { a } from './a b.ts'; f('name')", ['1: ./a b.ts']],
  ['a.ts', '// a b\nf(1)', []],
  ['a.tsx', "const a = <p>\n  a is{' '}\n  <b>c d</b> none.\n</p>", ['1: a is … none.', '3: c d']],
  ['a.md', 'a is\nnone.\n\n    is none\n\n- `is none` b', ['1: a is none.', '6: - … b']],
])('the texts of %s with %j are found', (file, source, texts) => {
  expect(listTexts(file, source).map(({ line, text }) => `${line}: ${text}`)).toEqual(texts)
})
