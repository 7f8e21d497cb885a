import { expect, it } from 'vitest'
import { parseEifHeader } from '#attestation/eif/format.ts'
import { rowsByCode } from '../../support/case-table.ts'
import {
  APPLICATION,
  buildImage,
  CMDLINE,
  KERNEL,
  type PlannedImage,
  RAMDISK,
  USUAL_SECTIONS,
} from './image-builder.ts'

const SECTIONS = [KERNEL, CMDLINE, RAMDISK]
const parse = (plan: Partial<PlannedImage>, fileBytes?: number) => {
  const image = buildImage({ sections: SECTIONS, ...plan })
  return parseEifHeader(image.subarray(0, 548), fileBytes ?? image.length)
}
const refusal = (code: string) => expect.objectContaining({ name: 'EifError', code })
const CMDLINE_AT = 548n + 12n + BigInt(KERNEL.data.length)
const RAMDISK_AT = CMDLINE_AT + 12n + BigInt(CMDLINE.data.length)

it('parseEifHeader gives what the header says and where the sections are', () => {
  const image = buildImage({ sections: SECTIONS, version: 3 })
  expect(parseEifHeader(image, image.length)).toEqual({
    version: 3,
    architecture: 'x86_64',
    defaultMemoryBytes: 1n << 30n,
    defaultCpus: 2n,
    crc32: new DataView(image.buffer).getUint32(544),
    sections: [
      { offset: 548, dataBytes: KERNEL.data.length },
      { offset: Number(CMDLINE_AT), dataBytes: CMDLINE.data.length },
      { offset: Number(RAMDISK_AT), dataBytes: RAMDISK.data.length },
    ],
  })
})

it.each([2, 3, 4])('parseEifHeader accepts an image of version %d', (version) => {
  expect(parse({ version }).version).toBe(version)
})

it('parseEifHeader knows the architecture by its flag', () => {
  expect(parse({ flags: 1 }).architecture).toBe('aarch64')
})

it('parseEifHeader accepts an image of 32 sections', () => {
  const many = [KERNEL, CMDLINE, ...Array.from({ length: 30 }, () => APPLICATION)]
  expect(parse({ sections: many }).sections.length).toBe(32)
})

it.each(
  rowsByCode<Partial<PlannedImage>>({
    magic: { 'another magic': { magic: '.eiF' } },
    version: { 'version 1, which has no CRC': { version: 1 }, 'version 5': { version: 5 } },
    header_flags: { 'an unknown flag': { flags: 2 } },
    header_reserved: { 'a reserved field': { reserved: 1 }, 'the unused field': { unused: 1 } },
    section_count: { 'no section': { count: 0 }, '33 sections': { count: 33 } },
    section_table: {
      'an offset beyond the count': { offsets: { 3: 548n } },
      'a size beyond the count': { sizes: { 31: 1n } },
      'a count one too low': { count: 2 },
    },
    section_overlap: {
      'a count one too high': { count: 4 },
      'a section inside the header': { offsets: { 0: 540n } },
      'a section over the end of the one before': { offsets: { 1: CMDLINE_AT - 1n } },
    },
    section_gap: {
      'a gap between sections': { offsets: { 1: CMDLINE_AT + 1n } },
      'the largest offset': { offsets: { 1: (1n << 64n) - 1n } },
    },
    section_order: {
      'sections listed in another order than they lie in': {
        offsets: { 2: 548n, 1: CMDLINE_AT },
      },
    },
    section_beyond_file: {
      'a section that ends beyond the file': { sizes: { 2: BigInt(RAMDISK.data.length) + 1n } },
      'a size whose end wraps around 64 bits': { sizes: { 2: (1n << 64n) - RAMDISK_AT - 12n } },
    },
    trailing_data: { 'bytes after the last section': { trailing: Uint8Array.of(0) } },
  }),
)('parseEifHeader refuses a wrong header: %s', (_, code, plan) => {
  expect(() => parse(plan)).toThrow(refusal(code))
})

it.each([
  ['is cut in its signature', { sizes: { 0: 1n << 40n } }],
  ['has a longer one than it says', { trailing: Uint8Array.of(0) }],
])('parseEifHeader says of an image that %s to sign the unsigned image', (_, plan) => {
  expect(() => parse(plan)).toThrow(/sign the unsigned image/)
})

it('parseEifHeader refuses a file that is cut anywhere', () => {
  const image = buildImage({ sections: USUAL_SECTIONS })
  for (let length = 548; length < image.length; length++)
    expect(() => parseEifHeader(image, length)).toThrow(
      expect.objectContaining({ name: 'EifError' }),
    )
})

it('parseEifHeader refuses fewer bytes than a header has', () => {
  expect(() => parseEifHeader(new Uint8Array(547), 547)).toThrow(refusal('header_truncated'))
  expect(() => parseEifHeader(new Uint8Array(), 0)).toThrow(refusal('header_truncated'))
})
