import { describe, expect, it } from 'vitest'
import { parseInt8 } from '#src/storage/tables.ts'

describe('parseInt8', () => {
  it.each([
    ['0', 0],
    ['-1', -1],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
    ['-9007199254740991', Number.MIN_SAFE_INTEGER],
  ])('parseInt8 gives %s as a number', (text, value) => {
    expect(parseInt8(text)).toBe(value)
  })

  it.each(['9007199254740992', '-9007199254740992', '9223372036854775807'])(
    'parseInt8 refuses %s, which a number cannot hold',
    (text) => {
      expect(() => parseInt8(text)).toThrow(RangeError)
    },
  )
})
