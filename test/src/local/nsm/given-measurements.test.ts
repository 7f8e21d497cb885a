import { describe, expect, it } from 'vitest'
import { encodeHex } from '../../../../attestation/bytes.ts'
import { FormatError } from '../../../../attestation/errors.ts'
import { JsonError } from '../../../../attestation/json/json-error.ts'
import {
  MEASUREMENTS_FILE_BYTES_MAX,
  parseGivenMeasurements,
} from '../../../../src/local/nsm/measured-source.ts'

const registers = { '0': 'a0'.repeat(48), '1': 'b1'.repeat(48), '2': 'c2'.repeat(48) }
const parse = (value: unknown) => parseGivenMeasurements(Buffer.from(JSON.stringify(value)))

describe('parseGivenMeasurements', () => {
  it('gives the three registers', () => {
    const { pcr0, pcr1, pcr2 } = parse(registers)
    expect([pcr0, pcr1, pcr2].map(encodeHex)).toEqual(Object.values(registers))
  })

  it('reads a file of the greatest size', () => {
    const text = JSON.stringify(registers).padEnd(MEASUREMENTS_FILE_BYTES_MAX, '\n')
    expect(encodeHex(parseGivenMeasurements(Buffer.from(text)).pcr2)).toBe(registers['2'])
    expect(() => parseGivenMeasurements(Buffer.from(`${text}\n`))).toThrow(FormatError)
  })

  it.each([
    ['an array', [registers]],
    ['null', null],
    ['a register that is missing', { '0': registers['0'], '1': registers['1'] }],
    ['a register too many', { ...registers, '8': registers['0'] }],
    ['a register that is short by a digit', { ...registers, '1': 'b'.repeat(95) }],
    ['a register that is long by a byte', { ...registers, '1': 'b'.repeat(98) }],
    ['upper-case digits', { ...registers, '2': 'C2'.repeat(48) }],
    ['a prefix', { ...registers, '2': `0x${'c'.repeat(94)}` }],
    ['a line break after the digits', { ...registers, '2': `${registers['2']}\n` }],
    ['a number', { ...registers, '0': 0 }],
  ])('refuses %s', (_, value) => {
    expect(() => parse(value)).toThrow(FormatError)
  })

  it.each([
    ['no JSON', 'PCR0'],
    ['nothing', ''],
    ['a member twice', JSON.stringify(registers).replace('{', `{"0":"${registers['1']}",`)],
  ])('refuses %s', (_, text) => {
    expect(() => parseGivenMeasurements(Buffer.from(text))).toThrow(JsonError)
  })
})
