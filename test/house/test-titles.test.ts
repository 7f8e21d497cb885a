import { expect, it } from 'vitest'
import { findTitleFault, listTitles } from './test-titles.ts'
import { listTracked, readTracked } from './tracked-files.ts'

const files = listTracked('*.test.ts', '*.test.tsx')

it('every title of a test is a whole sentence with its subject', () => {
  const titles = files.flatMap((file) => listTitles(file, readTracked(file)))
  const faults = titles.flatMap(({ file, line, text }) => {
    const fault = findTitleFault(text)
    return fault === null ? [] : [`${file}:${line}: "${text}": ${fault}`]
  })
  expect(titles.length).toBeGreaterThan(3_000)
  expect(faults).toEqual([])
})

it.each([
  'is refused when its key is wrong',
  'of another account are not found',
  'refuses a body of another form',
  'when it fails, the caller is told',
  'needs a key',
  'a key works',
  'a key works [needs nats-server]',
  '',
])('the title "%s" is no whole sentence', (title) => {
  expect(findTitleFault(title)).not.toBeNull()
})

it.each([
  'a key with a budget makes no keys',
  'names that only look alike are told apart',
  'openssl reads the key [needs openssl]',
])('the title "%s" is a whole sentence', (title) => {
  expect(findTitleFault(title)).toBeNull()
})
