import { expect, it } from 'vitest'
import {
  normaliseResults,
  SNIPPET_LENGTH_MAX,
  TITLE_LENGTH_MAX,
  URL_LENGTH_MAX,
} from '#src/search/results.ts'

const item = (change: object = {}) => ({
  title: 'T',
  url: 'https://a.example/',
  snippet: 'S',
  ...change,
})

it.each([
  'javascript:alert(1)',
  'data:text/html,x',
  'ftp://a.example/',
  'file:///etc/passwd',
  '//a.example/',
  'a.example',
  '',
  'https://bank.example@evil.example/',
  'https://user:pass@a.example/',
  `https://a.example/${'a'.repeat(URL_LENGTH_MAX)}`,
  `https://a.example/${'ä'.repeat(URL_LENGTH_MAX / 2)}`,
  null,
  7,
  {},
])('normaliseResults leaves out %j, and counts positions without it', (url) => {
  expect(normaliseResults([item({ url }), item()], 5)).toEqual([
    { title: 'T', url: 'https://a.example/', snippet: 'S', position: 1 },
  ])
})

it('normaliseResults gives the address in one spelling', () => {
  const [found] = normaliseResults([item({ url: 'HTTPS://A.example:443/x y' })], 1)
  expect(found?.url).toBe('https://a.example/x%20y')
})

it('normaliseResults bounds texts by characters, and takes their control characters out', () => {
  const long = '\u{1f600}'.repeat(SNIPPET_LENGTH_MAX + 5)
  const [found] = normaliseResults(
    [item({ title: 'a\u0000\u001b[31m\n\tb\u202ec\ud800', snippet: long })],
    1,
  )
  expect(found?.title).toBe('a [31m b c\ufffd')
  expect([...(found?.snippet ?? '')]).toHaveLength(SNIPPET_LENGTH_MAX)
  expect([
    ...(normaliseResults([item({ title: 'x'.repeat(5_000) })], 1)[0]?.title ?? ''),
  ]).toHaveLength(TITLE_LENGTH_MAX)
})

it('normaliseResults gives texts for missing ones', () => {
  expect(normaliseResults([{ title: null, url: 'http://a.example/', snippet: 7 }], 1)).toEqual([
    { title: 'http://a.example/', url: 'http://a.example/', snippet: '', position: 1 },
  ])
})
