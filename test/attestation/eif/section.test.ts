import { expect, it } from 'vitest'
import {
  checkComplete,
  parseSectionHeader,
  SECTION_BYTES_MAX,
  type Section,
  type SectionKind,
} from '#attestation/eif/format.ts'

const place = (dataBytes: number) => ({ offset: 548, dataBytes })
const section = (kind: SectionKind): Section => ({ kind, ...place(10) })
const refusal = (code: string) => expect.objectContaining({ name: 'EifError', code })

function header({
  type = 1,
  flags = 0,
  size = 10n,
}: {
  type?: number
  flags?: number
  size?: bigint
}): Uint8Array {
  const bytes = Buffer.alloc(12)
  bytes.writeUInt16BE(type, 0)
  bytes.writeUInt16BE(flags, 2)
  bytes.writeBigUInt64BE(size, 4)
  return bytes
}

const parse = (
  bytes: Uint8Array,
  context: { dataBytes?: number; before?: readonly Section[]; version?: number } = {},
) =>
  parseSectionHeader(bytes, {
    place: place(context.dataBytes ?? 10),
    before: context.before ?? [],
    version: context.version ?? 4,
  })

it.each([
  [1, 'kernel'],
  [2, 'cmdline'],
  [3, 'ramdisk'],
  [4, 'signature'],
  [5, 'metadata'],
])('parseSectionHeader knows type %d as %s', (type, kind) => {
  expect(parse(header({ type }))).toEqual({ kind, offset: 548, dataBytes: 10 })
})

it.each([0, 6, 0x0100, 0xffff])('parseSectionHeader refuses a section of type %d', (type) => {
  expect(() => parse(header({ type }))).toThrow(refusal('section_type'))
})

it('parseSectionHeader refuses a section with flags', () => {
  expect(() => parse(header({ flags: 1 }))).toThrow(refusal('section_flags'))
})

it.each([9n, 11n, 10n + (1n << 32n), (1n << 64n) - 1n])(
  'parseSectionHeader refuses a section of %d bytes where the table says 10',
  (size) => {
    expect(() => parse(header({ size }))).toThrow(refusal('section_size_mismatch'))
  },
)

it.each([
  [5, 3, 'section_not_in_version'],
  [5, 2, 'section_not_in_version'],
  [4, 2, 'section_not_in_version'],
])('parseSectionHeader refuses a section of type %d in version %d', (type, version, code) => {
  expect(() => parse(header({ type }), { version })).toThrow(refusal(code))
})

it('parseSectionHeader accepts a signature from version 3 on', () => {
  expect(parse(header({ type: 4 }), { version: 3 }).kind).toBe('signature')
})

it.each([
  [1, 'kernel'],
  [2, 'cmdline'],
  [4, 'signature'],
  [5, 'metadata'],
] as const)('parseSectionHeader refuses a section of type %d after a %s', (type, kind) => {
  expect(() => parse(header({ type }), { before: [section(kind)] })).toThrow(
    refusal('section_repeated'),
  )
})

it('parseSectionHeader accepts any number of ramdisks', () => {
  expect(
    parse(header({ type: 3 }), { before: [section('ramdisk'), section('ramdisk')] }).kind,
  ).toBe('ramdisk')
})

it.each([
  [4, SECTION_BYTES_MAX.signature],
  [5, SECTION_BYTES_MAX.metadata],
])(
  'parseSectionHeader accepts a section of type %d of %d bytes and refuses one byte more',
  (type, dataBytes) => {
    expect(parse(header({ type, size: BigInt(dataBytes) }), { dataBytes }).dataBytes).toBe(
      dataBytes,
    )
    expect(() =>
      parse(header({ type, size: BigInt(dataBytes + 1) }), { dataBytes: dataBytes + 1 }),
    ).toThrow(refusal('section_too_large'))
  },
)

it('checkComplete accepts kernel, command line and one ramdisk in any order', () => {
  expect(() =>
    checkComplete([section('ramdisk'), section('cmdline'), section('kernel')]),
  ).not.toThrow()
})

it.each(['kernel', 'cmdline', 'ramdisk'] as const)(
  'checkComplete refuses an image without %s',
  (missing) => {
    const kinds = (['kernel', 'cmdline', 'metadata', 'ramdisk'] as const).filter(
      (kind) => kind !== missing,
    )
    expect(() => checkComplete(kinds.map(section))).toThrow(refusal(`missing_${missing}`))
  },
)
