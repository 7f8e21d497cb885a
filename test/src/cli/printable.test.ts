import { describe, expect, it } from 'vitest'
import { formatChecks, printableJson, textTable } from '#src/cli/printable.ts'

/** Text that clears a terminal, turns the direction of writing, and begins another line. */
const HOSTILE = '\u001b[2J\u009b31m\u202eevil\r\nVERIFIED  all\u2028'
const ACTS_ON_TERMINAL = /[^\n\P{Cc}]|[\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/u

describe('textTable', () => {
  it('a table has its columns aligned, and no blanks at the end of a line', () => {
    const rows = [
      ['a', 'long cell', ''],
      ['longer', '-', 'z'],
    ]
    expect(textTable(['ID', 'NAME', 'END'], rows)).toBe(
      'ID      NAME       END\na       long cell\nlonger  -          z\n',
    )
    expect(textTable(['ID'], [])).toBe('ID\n')
  })

  it.each([0, 1, 2])(
    'a table shows what would act on a terminal as escapes, in column %d',
    (at) => {
      const table = textTable(['A', 'B', 'C'], [['a', 'b', 'c'].with(at, HOSTILE), ['d', 'e', 'f']])
      expect(table).not.toMatch(ACTS_ON_TERMINAL)
      const lines = table.split('\n')
      expect(lines).toHaveLength(4)
      expect(lines[1]).toContain('\\u{1b}[2J\\u{9b}31m\\u{202e}evil\\u{d}\\u{a}VERIFIED  all')
      // The widths are those of the escaped cells.
      if (at < 2) expect(lines[2]?.indexOf('f')).toBe(lines[1]?.indexOf('c'))
    },
  )
})

it('a detail of a check makes no line of its own', () => {
  const checks = [
    { name: 'one', outcome: 'failed', detail: HOSTILE },
    { name: 'second', outcome: 'not checked', detail: 'x' },
  ] as const
  const lines = formatChecks(checks).split('\n')
  expect(lines[0]).toMatch(/^ {2}FAILED {7}one {5}\\u\{1b\}\[2J/)
  expect(lines.slice(1)).toEqual(['  not checked  second  x', ''])
})

it('printable JSON is the same data, with nothing that a terminal acts on', () => {
  const value = { [HOSTILE]: 'a\u{e0041}\ud800ü😀\n\t', list: [1, null] }
  const json = printableJson(value)
  expect(JSON.parse(json)).toEqual(value)
  expect(json).not.toMatch(ACTS_ON_TERMINAL)
  expect(json).toContain('ü😀')
})
