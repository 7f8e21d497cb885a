import { InvalidArgumentError } from 'commander'
import { describe, expect, it } from 'vitest'
import { parseTime } from '#src/cli/commands/operator.ts'

describe('parseTime', () => {
  it.each([
    ['2028-02-29', '2028-02-29T00:00:00Z'],
    ['2027-01-31T12:00Z', '2027-01-31T12:00:00Z'],
    ['2027-01-31T23:59:59Z', '2027-01-31T23:59:59Z'],
  ])('parseTime reads the date or time %s in UTC', (text, time) => {
    expect(parseTime(text)).toBe(Date.parse(time) / 1000)
  })

  it.each([
    '2027-02-29',
    '2027-02-31',
    '2027-04-31T12:00Z',
    '2027-13-01',
    '2027-01-31T25:00Z',
    '31.1.2027',
  ])('parseTime refuses %s, which is no date or time', (text) => {
    expect(() => parseTime(text)).toThrow(InvalidArgumentError)
  })
})
