import { expect, it } from 'vitest'
import { DerError, decodeDer, decodeObjectIdentifier, decodeTime } from '#attestation/nitro/der.ts'
import { objectIdentifier } from '../../support/nitro-builder/der-encoder.ts'

const bytesOf = (hex: string) => new Uint8Array(Buffer.from(hex.replaceAll(' ', ''), 'hex'))
const text = (value: string) => new Uint8Array(Buffer.from(value))

it.each([
  ['a sequence', '3006 020101 0101ff'],
  ['an empty set', '3100'],
  ['a sorted set', '3106 020101 020102'],
  ['a set of equal elements', '3106 020101 020101'],
  ['zero', '020100'],
  ['a positive integer with its first bit set', '02020080'],
  ['minus one', '0201ff'],
  ['minus 129', '0202ff7f'],
  ['a bit string', '0303 07ff80'],
  ['an empty bit string', '030100'],
  ['an empty octet string', '0400'],
  ['null', '0500'],
  ['an object identifier', '0603 550403'],
  ['primitive context content that is anything', '8102ffff'],
  ['128 bytes', `048180${'00'.repeat(128)}`],
])('the DER decoder accepts %s', (_, hex) => {
  expect(decodeDer(bytesOf(hex)).encoding).toEqual(bytesOf(hex))
})

it.each([
  ['nothing', ''],
  ['a tag alone', '30'],
  ['a length without content', '0401'],
  ['a length beyond its parent', '3003 040200'],
  ['trailing bytes', '050000'],
  ['an indefinite length', '30800000'],
  ['a length in a byte too many', '048101 00'],
  ['a length with a leading zero', `0482 0080${'00'.repeat(128)}`],
  ['a length of four bytes', '0484 00000001 00'],
  ['a reserved length', '04ff'],
  ['a length that is cut off', '0482 01'],
  ['a tag number in two bytes', '1f2000'],
  ['an integer without bytes', '0200'],
  ['a padded integer', '02020001'],
  ['a padded negative integer', '0202ff80'],
  ['a boolean of 01', '010101'],
  ['a boolean of two bytes', '0102ffff'],
  ['a null with content', '050100'],
  ['a bit string without bytes', '0300'],
  ['eight unused bits', '030208ff'],
  ['unused bits that are set', '030201ff'],
  ['unused bits of nothing', '030101'],
  ['an object identifier without bytes', '0600'],
  ['an object identifier that is cut off', '060255 84'],
  ['an object identifier with padding', '0603 558003'],
  ['an octet string in pieces', '2404 0402 0000'],
  ['a sequence that is not constructed', '1000'],
  ['an unsorted set', '3106 020102 020101'],
  ['invalid UTF-8', '0c01ff'],
  ['an asterisk in a PrintableString', '13012a'],
  ['a byte above 7f in an IA5String', '160180'],
  ['half a character in a BMPString', '1e0100'],
  ['a type that certificates are not made of', '090100'],
  ['nesting beyond 16', nested(17)],
])('the DER decoder refuses malformed bytes: %s', (_, hex) => {
  expect(() => decodeDer(bytesOf(hex))).toThrow(DerError)
})

it('the DER decoder accepts nesting of 16 and gives each level', () => {
  let node = decodeDer(bytesOf(nested(15)))
  let levels = 1
  while (node.children[0]) {
    node = node.children[0]
    levels += 1
  }
  expect(levels).toBe(16)
})

it.each([
  [0x17, '491231235959Z', '2049-12-31T23:59:59Z'],
  [0x17, '500101000000Z', '1950-01-01T00:00:00Z'],
  [0x17, '000229120000Z', '2000-02-29T12:00:00Z'],
  [0x18, '20541206075525Z', '2054-12-06T07:55:25Z'],
  [0x18, '99991231235959Z', '9999-12-31T23:59:59Z'],
])('a time of type %i with the text %s is read as %s', (tag, digits, iso) => {
  expect(decodeTime(tag, text(digits))).toBe(Date.parse(iso))
})

it.each([
  [0x17, '20491231235959Z'],
  [0x18, '491231235959Z'],
  [0x17, '4912312359Z'],
  [0x17, '491231235959+0000'],
  [0x17, '491231235959'],
  [0x18, '20541206075525.1Z'],
  [0x17, '250229120000Z'],
  [0x17, '251301120000Z'],
  [0x17, '250100120000Z'],
  [0x17, '250101240000Z'],
  [0x17, '250101126000Z'],
  [0x17, '250101120060Z'],
  [0x17, ''],
])('a time of type %i with the text %s is refused', (tag, digits) => {
  expect(decodeTime(tag, text(digits))).toBeNull()
})

it.each(['2.5.4.3', '1.2.840.10045.4.3.3', '1.3.132.0.34', '0.0', '2.999.1'])(
  'decodeObjectIdentifier reads the identifier %s',
  (dotted) => {
    expect(decodeObjectIdentifier(objectIdentifier(dotted).subarray(2))).toBe(dotted)
  },
)

function nested(depth: number): string {
  let hex = '0500'
  for (let level = 0; level < depth; level++)
    hex = `30${(hex.length / 2).toString(16).padStart(2, '0')}${hex}`
  return hex
}
