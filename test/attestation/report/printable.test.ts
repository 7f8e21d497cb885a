import { expect, it } from 'vitest'
import {
  escapeControls,
  MARKS_MAX,
  PRINTED_LENGTH_MAX,
  printable,
} from '#attestation/report/printable.ts'

/** U+0300 COMBINING GRAVE ACCENT and those that follow. */
const marks = (count: number) =>
  Array.from({ length: count }, (_, at) => String.fromCodePoint(0x300 + (at % 0x6f))).join('')

it.each([
  ['plain text, 漢字 and 🙂', 'plain text, 漢字 and 🙂'],
  ['\u001b[2J\u001b[31m', '\\u{1b}[2J\\u{1b}[31m'],
  ['a\r\nb\t\u0000', 'a\\u{d}\\u{a}b\\u{9}\\u{0}'],
  ['\u009b31m', '\\u{9b}31m'],
  ['\u202eslaw', '\\u{202e}slaw'],
  ['a\u2028b', 'a\\u{2028}b'],
  ['\ud800', '\\u{d800}'],
])('printable shows %j as %j', (text, shown) => {
  expect(printable(text)).toBe(shown)
})

it.each([
  '漢字 and 🙂 ❤️',
  'e\u0302\u0323, שָׁלוֹם, ที่นี่, हिन्दी, བསྒྲུབས',
  `a${marks(MARKS_MAX)}b${marks(MARKS_MAX)}`,
])('printable keeps the marks of writing: %s', (text) => {
  expect(printable(text)).toBe(text)
})

it('printable shows a limited number of marks on one character and counts the rest', () => {
  expect(printable(`model${marks(300)}-1${marks(MARKS_MAX + 1)}`)).toBe(
    `model${marks(MARKS_MAX)}[+${300 - MARKS_MAX} marks]-1${marks(MARKS_MAX)}[+1 marks]`,
  )
  // U+1D165 MUSICAL SYMBOL COMBINING STEM: two code units.
  expect(printable(`a${'\u{1d165}'.repeat(9)}`)).toBe(
    `a${'\u{1d165}'.repeat(MARKS_MAX)}[+${9 - MARKS_MAX} marks]`,
  )
})

it('a mark at the beginning does not stand on what is before the text', () => {
  expect(printable(`${marks(2)}a`)).toBe(`\u25cc${marks(2)}a`)
})

it('escapeControls cuts a long run of marks and keeps a long text with few marks on each character', () => {
  expect(escapeControls(marks(100_000)).length).toBeLessThan(100)
  expect(escapeControls(`a${marks(4)}`.repeat(20_000))).toHaveLength(100_000)
})

it('printable cuts long text', () => {
  expect(printable('x'.repeat(10_000))).toHaveLength(PRINTED_LENGTH_MAX + 1)
})
