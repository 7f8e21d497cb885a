import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  decodeBase64,
  decodeBase64Url,
  decodeHex,
  encodeBase64,
  encodeHex,
  equalBytes,
} from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'

const bytes = fc.uint8Array({ maxLength: 300 })

it('hex is written as the platform writes it and read back in either case and with 0x', () => {
  fc.assert(
    fc.property(bytes, (value) => {
      const text = encodeHex(value)
      expect(text).toBe(Buffer.from(value).toString('hex'))
      expect(decodeHex(text)).toEqual(value)
      expect(decodeHex(`0x${text.toUpperCase()}`)).toEqual(value)
    }),
  )
})

it.each(['a', '0x0', 'g0', '0g', ' 00', '00 ', '0X00', '0x0x', '-1', '٠٠', '1e1', '\u{1d7d8}'])(
  'decodeHex refuses the text %j',
  (text) => {
    expect(() => decodeHex(text)).toThrow(FormatError)
  },
)

it('base64 is written as the platform writes it and read back', () => {
  fc.assert(
    fc.property(bytes, (value) => {
      const text = encodeBase64(value)
      expect(text).toBe(Buffer.from(value).toString('base64'))
      expect(decodeBase64(text)).toEqual(value)
    }),
  )
})

it.each([
  ['no padding', 'YQ'],
  ['too much padding', 'YQ==='],
  ['padding alone', '===='],
  ['three padding characters', 'Y==='],
  ['padding inside', 'YQ==YQ=='],
  ['padding before a digit', 'Y=Q='],
  ['the URL alphabet', 'ab-_'],
  ['white space', 'YWJj\nYWJj'.padEnd(12, '=')],
  ['a space', 'YW J'],
  ['other characters', 'YWJ\u0100'],
  ['bits behind the last byte', 'YR=='],
  ['bits behind the last two bytes', 'YWF='],
])('decodeBase64 refuses malformed text: %s', (_, text) => {
  expect(() => decodeBase64(text)).toThrow(FormatError)
})

it('decodeBase64 accepts no two texts for the same bytes', () => {
  const digit = fc.constantFrom(...'AQgwBCDZaz0189+/=')
  fc.assert(
    fc.property(fc.string({ unit: digit, minLength: 4, maxLength: 8 }), (text) => {
      let decoded: Uint8Array
      try {
        decoded = decodeBase64(text)
      } catch (error) {
        expect(error).toBeInstanceOf(FormatError)
        return
      }
      expect(encodeBase64(decoded)).toBe(text)
    }),
    { numRuns: 1000 },
  )
})

it('base64url is read as the platform writes it, without padding', () => {
  fc.assert(
    fc.property(bytes, (value) => {
      expect(decodeBase64Url(Buffer.from(value).toString('base64url'))).toEqual(value)
    }),
  )
})

it.each(['YQ==', 'ab+a', 'ab/a', 'YR', 'Y', 'YW J'])(
  'decodeBase64Url refuses the text %j',
  (text) => {
    expect(() => decodeBase64Url(text)).toThrow(FormatError)
  },
)

it('two byte arrays are equal when their lengths and all bytes are equal', () => {
  fc.assert(
    fc.property(bytes, bytes, (left, right) => {
      expect(equalBytes(left, left.slice())).toBe(true)
      expect(equalBytes(left, right)).toBe(Buffer.compare(left, right) === 0)
    }),
  )
  expect(equalBytes(new Uint8Array([1, 2, 3]), new Uint8Array([1, 2]))).toBe(false)
  expect(equalBytes(new Uint8Array([1, 2, 3]), new Uint8Array([1, 2, 4]))).toBe(false)
})
