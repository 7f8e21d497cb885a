import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EifError } from '#attestation/eif/eif-error.ts'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { type EifParts, encodeEif, measureParts } from '#enclave/image/eif.ts'
import { buildImage, measurementOf, repairCrc, TYPE } from '../../attestation/eif/image-builder.ts'

const bytes = fc.uint8Array({ minLength: 1, maxLength: 60 })
const parts: fc.Arbitrary<EifParts> = fc.record({
  kernel: bytes,
  cmdline: fc.string({ minLength: 1, maxLength: 30 }),
  metadata: fc
    .dictionary(fc.stringMatching(/^[a-z]{1,8}$/), fc.string())
    .map((value) => JSON.stringify(value)),
  ramdisks: fc.array(bytes, { minLength: 1, maxLength: 4 }),
  signature: fc.constant(null),
})

async function measure(image: Uint8Array) {
  const chunks = (async function* () {
    yield image
  })()
  return measureEif({ sizeBytes: image.length, chunks })
}

describe('encodeEif', () => {
  it('encodeEif gives images that the reader measures as their parts are measured', async () => {
    await fc.assert(
      fc.asyncProperty(parts, async (given) => {
        const report = await measure(encodeEif(given))
        const { pcr0, pcr1, pcr2 } = report.measurements
        const [first = new Uint8Array(), ...others] = given.ramdisks
        const boot = [given.kernel, Buffer.from(given.cmdline), first]
        expect({ pcr0, pcr1, pcr2 }).toEqual(measureParts(given))
        expect(pcr0).toEqual(measurementOf(...boot, ...others))
        expect(pcr1).toEqual(measurementOf(...boot))
        expect(pcr2).toEqual(measurementOf(...others))
        expect(report).toMatchObject({ version: 4, architecture: 'x86_64', defaultCpus: 2n })
        expect(report.metadata).toEqual(JSON.parse(given.metadata))
      }),
    )
  })

  it('encodeEif lays sections out as the official tools do: kernel, command line, metadata, ramdisks', () => {
    fc.assert(
      fc.property(parts, (given) => {
        const sections = [
          { type: TYPE.kernel, data: given.kernel },
          { type: TYPE.cmdline, data: Buffer.from(given.cmdline) },
          { type: TYPE.metadata, data: Buffer.from(given.metadata) },
          ...given.ramdisks.map((data) => ({ type: TYPE.ramdisk, data })),
        ]
        expect(encodeEif(given)).toEqual(buildImage({ sections }))
      }),
    )
  })

  it('a changed byte anywhere in an EIF image makes the reader refuse it', async () => {
    const given = {
      kernel: Uint8Array.of(1, 2),
      cmdline: 'a',
      metadata: '{}',
      ramdisks: [Uint8Array.of(3)],
    }
    const image = encodeEif({ ...given, signature: null })
    for (let index = 0; index < image.length; index++) {
      const changed = image.map((byte, position) => (position === index ? byte ^ 1 : byte))
      await expect(measure(changed)).rejects.toThrow(EifError)
    }
  })

  it("a changed byte in an EIF section changes PCR0 and the section's PCR, even with a mended checksum", async () => {
    const given = {
      kernel: Uint8Array.of(1),
      cmdline: 'a',
      metadata: '{}',
      ramdisks: [Uint8Array.of(2), Uint8Array.of(3)],
    }
    const before = measureParts(given)
    const image = encodeEif({ ...given, signature: null })
    const expected: Readonly<Record<number, readonly string[]>> = {
      0: ['pcr0', 'pcr1'],
      1: ['pcr0', 'pcr1'],
      3: ['pcr0', 'pcr1'],
      4: ['pcr0', 'pcr2'],
    }
    const { sections } = await measure(image)
    for (const [section, registers] of Object.entries(expected)) {
      const at = (sections[Number(section)]?.offset ?? 0) + 12
      const changed = image.map((byte, position) => (position === at ? byte ^ 1 : byte))
      const { pcr0, pcr1, pcr2 } = (await measure(repairCrc(changed))).measurements
      const after = { pcr0, pcr1, pcr2 }
      const differing = (['pcr0', 'pcr1', 'pcr2'] as const).filter(
        (name) => Buffer.compare(before[name], after[name]) !== 0,
      )
      expect(differing).toEqual(registers)
    }
  })

  it('encodeEif refuses an image without a ramdisk, and with more than a header has room for', () => {
    const given = { kernel: Uint8Array.of(1), cmdline: 'a', metadata: '{}', signature: null }
    expect(() => encodeEif({ ...given, ramdisks: [] })).toThrow(RangeError)
    expect(() =>
      encodeEif({ ...given, ramdisks: Array.from({ length: 30 }, () => Uint8Array.of(1)) }),
    ).toThrow(RangeError)
  })
})
