import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isExactNumber } from '#attestation/json/exact-number.ts'

describe('isExactNumber', () => {
  it.each([
    '0',
    '-0',
    '0.000',
    '0e5',
    '1',
    '-1',
    '1.0',
    '4.50',
    '1E30',
    '1e+30',
    '10e29',
    '0.1e31',
    '100',
    '1e2',
    '0.1',
    '-0.25e-3',
    '9007199254740992',
    '123456789012345680000',
    '5e-324',
    '0.000001',
    '1e-7',
    '1.7976931348623157e+308',
    '123456789012345e-300',
  ])('isExactNumber says that nothing of %s is lost', (literal) => {
    expect(isExactNumber(literal, Number(literal))).toBe(true)
  })

  it.each([
    '9007199254740993',
    '-9007199254740993',
    '9007199254740993.0',
    '12345678901234567890',
    '1e-400',
    '3e-324',
    '0.30000000000000000001',
    '1.00000000000000000001',
    '1.7976931348623158e308',
    '1e400',
    '1234567890123456789e5',
    '2.2250738585072011e-308',
  ])('isExactNumber says that something of %s is lost', (literal) => {
    expect(isExactNumber(literal, Number(literal))).toBe(false)
  })

  it('isExactNumber says that nothing is lost of any double as ECMAScript writes it', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        expect(isExactNumber(String(value), value)).toBe(true)
        expect(isExactNumber(value.toExponential(), value)).toBe(true)
      }),
      { numRuns: 3000 },
    )
  })

  it('isExactNumber agrees with exact arithmetic on any decimal with an exponent', () => {
    const digits = fc.bigInt({ min: 0n, max: 10n ** 22n })
    fc.assert(
      fc.property(digits, fc.integer({ min: -30, max: 30 }), (mantissa, exponent) => {
        const literal = `${mantissa}e${exponent}`
        const value = Number(literal)
        expect(isExactNumber(literal, value)).toBe(isSameDecimal(mantissa, exponent, value))
      }),
      { numRuns: 3000 },
    )
  })
})

/**
 * Compares mantissa × 10^exponent with the decimal that toExponential writes, both scaled to whole
 * numbers.
 */
function isSameDecimal(mantissa: bigint, exponent: number, value: number): boolean {
  const [kept = '', keptPower = '0'] = value.toExponential().split('e')
  const [whole = '', fraction = ''] = kept.split('.')
  const scale = 100
  const left = mantissa * 10n ** BigInt(exponent + scale)
  const right =
    BigInt(whole + fraction) * 10n ** BigInt(Number(keptPower) - fraction.length + scale)
  return left === right
}
