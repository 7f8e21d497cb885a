import { describe, expect, it } from 'vitest'
import { PRINTED_LENGTH_MAX, printable } from '../../../src/cli/printable.ts'

describe('printable', () => {
  it.each([
    ['plain text, 漢字 and 🙂', 'plain text, 漢字 and 🙂'],
    ['\u001b[2J\u001b[31m', '\\u{1b}[2J\\u{1b}[31m'],
    ['a\r\nb\t\u0000', 'a\\u{d}\\u{a}b\\u{9}\\u{0}'],
    ['\u009b31m', '\\u{9b}31m'],
    ['\u202eslaw', '\\u{202e}slaw'],
    ['a\u2028b', 'a\\u{2028}b'],
    ['\ud800', '\\u{d800}'],
  ])('shows %j as %j', (text, shown) => {
    expect(printable(text)).toBe(shown)
  })

  it('cuts long text', () => {
    expect(printable('x'.repeat(10_000))).toHaveLength(PRINTED_LENGTH_MAX + 1)
  })
})
