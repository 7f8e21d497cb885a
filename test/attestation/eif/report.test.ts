import { expect, it } from 'vitest'
import type { SectionKind } from '#attestation/eif/format.ts'
import { type EifReport, listWarnings } from '#attestation/eif/measure-eif.ts'

const SIGNATURE = { algorithm: 'ES384', certificate: new Uint8Array() } as const
const image = (kinds: readonly SectionKind[], more: Partial<EifReport> = {}) => ({
  version: 4,
  metadata: {},
  signature: SIGNATURE,
  sections: kinds.map((kind) => ({ kind, offset: 0, dataBytes: 0 })),
  ...more,
})
const codes = (of: ReturnType<typeof image>) => listWarnings(of).map(({ code }) => code)
const ALWAYS = ['header_not_measured', 'boundaries_not_measured']

it('listWarnings always says that header and boundaries are not measured', () => {
  expect(codes(image(['ramdisk', 'ramdisk']))).toEqual([
    ...ALWAYS,
    'metadata_not_measured',
    'certificate_not_judged',
  ])
})

it('listWarnings says that an image has no signature, no application or not the metadata of its version', () => {
  expect(codes(image(['ramdisk'], { metadata: null, signature: null }))).toEqual([
    ...ALWAYS,
    'no_metadata',
    'no_application',
    'not_signed',
  ])
})

it('listWarnings misses no metadata in versions that have none', () => {
  expect(codes(image(['ramdisk', 'ramdisk'], { metadata: null, version: 3 }))).not.toContain(
    'no_metadata',
  )
})

it('every warning has a whole sentence as its message', () => {
  for (const { message } of listWarnings(image(['ramdisk'], { metadata: null, signature: null })))
    expect(message).toMatch(/^[A-Z].*\.$/)
})
