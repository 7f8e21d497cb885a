import { describe, expect, it } from 'vitest'
import {
  derBitString,
  derBoolean,
  derContext,
  derContextPrimitive,
  derInteger,
  derObjectIdentifier,
  derOctetString,
  derPrintableString,
  derSequence,
  derSet,
  derTime,
  derUtf8String,
} from '../../../enclave/nsm/der.ts'

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const seconds = (text: string) => Date.parse(text) / 1000

describe('DER writer', () => {
  it.each([
    ['00', '020100'],
    ['0000', '020100'],
    ['7f', '02017f'],
    ['80', '02020080'],
    ['0001', '020101'],
    ['f93175', '020400f93175'],
  ])('writes the bytes %s as the shortest positive INTEGER', (bytes, expected) => {
    expect(hex(derInteger(Buffer.from(bytes, 'hex')))).toBe(expected)
  })

  it('writes no bytes as zero', () => {
    expect(hex(derInteger(new Uint8Array()))).toBe('020100')
  })

  it.each([
    ['1.2.840.10045.4.3.3', '06082a8648ce3d040303'],
    ['2.5.29.19', '0603551d13'],
    ['1.3.132.0.34', '06052b81040022'],
  ])('writes the object identifier %s', (dotted, expected) => {
    expect(hex(derObjectIdentifier(dotted))).toBe(expected)
  })

  it('writes times through 2049 as UTCTime and later ones as GeneralizedTime', () => {
    expect(Buffer.from(derTime(seconds('2049-12-31T23:59:59Z'))).toString('latin1')).toBe(
      '\x17\x0d491231235959Z',
    )
    expect(Buffer.from(derTime(seconds('2050-01-01T00:00:00Z'))).toString('latin1')).toBe(
      '\x18\x0f20500101000000Z',
    )
  })

  it('writes lengths in the shortest form', () => {
    expect(hex(derOctetString(new Uint8Array(127))).slice(0, 4)).toBe('047f')
    expect(hex(derOctetString(new Uint8Array(128))).slice(0, 6)).toBe('048180')
    expect(hex(derOctetString(new Uint8Array(256))).slice(0, 8)).toBe('04820100')
    expect(() => derOctetString(new Uint8Array(65_536))).toThrow(RangeError)
  })

  it('writes the other elements', () => {
    expect(hex(derBoolean(true)) + hex(derBoolean(false))).toBe('0101ff010100')
    expect(hex(derBitString(Uint8Array.of(0x86), 1))).toBe('03020186')
    expect(hex(derUtf8String('AWS'))).toBe('0c03415753')
    expect(hex(derPrintableString('US'))).toBe('13025553')
    expect(hex(derContext(3, derSequence()))).toBe('a3023000')
    expect(hex(derContextPrimitive(6, Uint8Array.of(1)))).toBe('860101')
    expect(hex(derSet(derBoolean(true)))).toBe('31030101ff')
  })
})
