import { expect, it } from 'vitest'
import {
  COMMENT_PHRASES,
  faultsOf,
  findPhrases,
  listTexts,
  PHRASES,
  READ_BY_USERS,
  TERM_PHRASES,
} from './plain-words.ts'
import { listTracked, readTracked } from './tracked-files.ts'

const isIn = (file: string, paths: readonly string[]): boolean =>
  paths.some((path) => file === path || file.startsWith(`${path}/`))
const tracked = listTracked('*.ts', '*.tsx', '*.md')
const files = tracked
  .filter((file) => isIn(file, READ_BY_USERS))
  // The READMEs of rooms are for developers.
  .filter((file) => /^(?:docs|deploy|packages)\//.test(file) || !file.endsWith('/README.md'))

it('every text that users read is in plain words', () => {
  const texts = files.flatMap((file) => listTexts(file, readTracked(file)))
  expect(texts.length).toBeGreaterThan(3_000)
  expect(faultsOf(texts, PHRASES)).toEqual([])
})

/** Another commit replaces these files. Until then they may say what docs/words.md does not use. */
const NOT_YET = [
  'attestation/evidence',
  'attestation/session',
  'attestation/report',
  'attestation/saved-proof.ts',
  'attestation/compare-exchange.ts',
  'client/anchored.ts',
  'client/proof.ts',
  'client/session.ts',
  'src/cli/evidence',
  'src/cli/commands/verify.ts',
  'src/cli/commands/complete.ts',
  'src/cli/commands/redact.ts',
  'src/cli/commands/evidence.ts',
  'src/cli/proxy',
  'src/web/verify',
  'docs/checking.md',
]

it('every text that users read has the terms of docs/words.md', () => {
  const held = [...files, 'CHANGELOG.md'].filter((file) => !isIn(file, NOT_YET))
  const texts = held.flatMap((file) => listTexts(file, readTracked(file)))
  expect(faultsOf(texts, TERM_PHRASES)).toEqual([])
})

it('the change log, and what developers read, is in plain words', () => {
  const pages = tracked.filter((file) =>
    /(?:README|CHANGELOG|CONTRIBUTING|SECURITY)\.md$/.test(file),
  )
  const texts = pages.flatMap((file) => listTexts(file, readTracked(file)))
  expect(texts.length).toBeGreaterThan(1_000)
  expect(faultsOf(texts, COMMENT_PHRASES)).toEqual([])
})

/** Ends of names of published cases: their descriptions repeat them. */
const CASE_NAMES = /an error that says nothing|a document is no unique key|a root nobody pinned/

it('what the conformance cases are about is in plain words', () => {
  const text = readTracked('test/vectors/manifest.json')
  const { cases } = JSON.parse(text) as { readonly cases: readonly { readonly about: string }[] }
  const faults = cases.flatMap(({ about }) =>
    findPhrases(about.replace(CASE_NAMES, '…'), COMMENT_PHRASES).map(
      ({ said }) => `"${said}": ${about}`,
    ),
  )
  expect(cases.length).toBeGreaterThan(500)
  expect(faults).toEqual([])
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

it.each([
  ['The receipt has the dialect of its call', ['dialect']],
  ['Judges the evidence', ['judge']],
  ['To judge it, or a judgement', ['judge', 'judgement']],
  ['Two signed heads of one log', ['signed head']],
  ['How many anchors of it still wait', ['anchor … wait']],
  ['Make a new API key', ['make … key']],
  ['The keys that it made', ['key … made']],
  ['The keys end at midnight', ['key end']],
])('the text "%s" is refused, because docs/words.md has a term', (text, names) => {
  expect(findPhrases(text, TERM_PHRASES).map(({ phrase }) => phrase.name)).toEqual(names)
})

it.each([
  'The key at the end of the line',
  'It makes sure that only its owner can read the key',
  "receipt ->> 'dialect'",
  'Make room, then create a key',
])('the text "%s" is accepted beside the terms of docs/words.md', (text) => {
  expect(findPhrases(text, TERM_PHRASES)).toEqual([])
})

it.each([
  ['a.ts', "throw new Error('a b')", ['1: a b']],
  ['a.ts', `const a =\n  \`a \u0024{b} c\``, ['2: a … c']],
  ['a.ts', "f('a is ' +\n  'none.')", ['1: a is none.']],
  ['a.ts', "import { a } from './a b.ts'; f('name')", ['1: ./a b.ts']],
  ['a.ts', "f('a `is none` b')", ['1: a … b']],
  ['a.ts', '// a b\nf(1)', []],
  ['a.tsx', "const a = <p>\n  a is{' '}\n  <b>c d</b> none.\n</p>", ['1: a is … none.', '3: c d']],
  ['a.md', 'a is\nnone.\n\n    is none\n\n- `is none` b', ['1: a is none.', '6: - … b']],
  ['a.md', 'a [b c](is/none.md#d) e', ['1: a [b c] e']],
])('the texts of %s with %j are found', (file, source, texts) => {
  expect(listTexts(file, source).map(({ line, text }) => `${line}: ${text}`)).toEqual(texts)
})
