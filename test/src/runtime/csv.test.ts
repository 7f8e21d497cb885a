import { expect, it } from 'vitest'
import { writeCsv } from '#src/runtime/csv.ts'

it('CSV ends lines by CRLF, and quotes what would end a cell', () => {
  expect(
    writeCsv(
      ['a', 'b'],
      [
        ['x,y', 'say "hi"'],
        ['two\r\nlines', null],
        [12, '0.5'],
      ],
    ),
  ).toBe('a,b\r\n"x,y","say ""hi"""\r\n"two\r\nlines",\r\n12,0.5\r\n')
})

it.each(['=1+1', '+1', '-1', '@SUM(A1)', '\t1', '\r1', '\n1', '＝1', '＠1'])(
  'writeCsv disarms the cell %j',
  (text) => {
    expect(writeCsv([], [[text]])).toBe(`\r\n"'${text}"\r\n`)
  },
)

it.each([';', '\t', '\r', '\n'])(
  'writeCsv disarms what begins behind %j, where some spreadsheets begin a cell',
  (separator) => {
    const text = ['gpt', "=cmd|' /C calc'!A0", 'x'].join(separator)
    expect(writeCsv([], [[text]])).toBe(`\r\n"gpt${separator}'=cmd|' /C calc'!A0${separator}x"\r\n`)
  },
)

it('CSV leaves signs inside of text, and numbers, as they are', () => {
  expect(writeCsv([], [['a=b', 'gpt-4o', -1]])).toBe('\r\na=b,gpt-4o,-1\r\n')
})
