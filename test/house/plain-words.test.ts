import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import {
  COMMENT_PHRASES,
  findOddNames,
  findPhrases,
  listComments,
  listOtherComments,
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

/** Files of services, images, manifests and pages. */
const WITH_COMMENTS =
  /(?:Dockerfile|-init|\/run|\.(?:ya?ml|service|target|conf|env|example|mjs|css|sol|py))$/
/** The contract's comments are in its bytecode: solc hashes its source. */
const NOT_REWRITTEN = ['contracts/Affidavit.sol']

it('every comment of a service, an image, a manifest or a style sheet is in plain words', () => {
  const others = execFileSync(
    'git',
    ['ls-files', '.ci', 'client', 'contracts', 'deploy', 'enclave', 'src'],
    {
      cwd: root,
      encoding: 'utf8',
    },
  )
    .split('\n')
    .filter((file) => WITH_COMMENTS.test(file))
    .filter((file) => !NOT_REWRITTEN.includes(file))
  const comments = others.flatMap((file) =>
    listOtherComments(file, readFileSync(join(root, file), 'utf8')),
  )
  expect(comments.length).toBeGreaterThan(150)
  expect(faultsOf(comments, COMMENT_PHRASES)).toEqual([])
})

it('the change log, and what developers read, is in plain words', () => {
  const pages = tracked.filter((file) =>
    /(?:README|CHANGELOG|CONTRIBUTING|SECURITY)\.md$/.test(file),
  )
  const texts = pages.flatMap((file) => listTexts(file, readFileSync(join(root, file), 'utf8')))
  expect(texts.length).toBeGreaterThan(1_000)
  expect(faultsOf(texts, COMMENT_PHRASES)).toEqual([])
})

/** Ends of names of published cases: their descriptions repeat them. */
const CASE_NAMES = /an error that says nothing|a document is no unique key|a root nobody pinned/

it('what the conformance cases are about is in plain words', () => {
  const text = readFileSync(join(root, 'test/vectors/manifest.json'), 'utf8')
  const { cases } = JSON.parse(text) as { readonly cases: readonly { readonly about: string }[] }
  const faults = cases.flatMap(({ about }) =>
    findPhrases(about.replace(CASE_NAMES, '…'), COMMENT_PHRASES).map(
      ({ said }) => `"${said}": ${about}`,
    ),
  )
  expect(cases.length).toBeGreaterThan(500)
  expect(faults).toEqual([])
})

/** On the wire: a member of the message between gateway and enclave. */
const ON_THE_WIRE = ['tells_completion']

it('no name in code has a word that the field has a term for', () => {
  const sources = tracked.filter((file) => /\.tsx?$/.test(file))
  const odd = sources.flatMap((file) => findOddNames(file, readFileSync(join(root, file), 'utf8')))
  const isKept = (fault: string): boolean =>
    ON_THE_WIRE.some((name) => fault.startsWith(`${name}:`)) ||
    // A member more, in the data of tests, and the runner's own reason of a skip.
    fault.startsWith('note: test/')
  expect(odd.length).toBeGreaterThan(ON_THE_WIRE.length)
  expect(odd.filter((fault) => !isKept(fault))).toEqual([])
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
