import { expect, it } from 'vitest'
import { parseKeepingDigits } from '#src/runtime/keep-digits.ts'

// https://github.com/earendil-works/pi/issues/8943
it.each([
  '{"id":9007199254740993,"name":"a"}',
  '[-12345678901234567890,{"a":[9007199254740992]}]',
  '{"text":"9007199254740993","small":1}',
  '{"fraction":0.1234567890123456789,"text":"\\"9007199254740993"}',
])('%s keeps its integers when it is written again', (text) => {
  const again = JSON.stringify(parseKeepingDigits(text))
  expect(again.replace('0.12345678901234568', '0.1234567890123456789')).toBe(text)
})

it('a text that is not JSON is a SyntaxError', () => {
  expect(() => parseKeepingDigits('{"a":9007199254740993')).toThrow(SyntaxError)
})
