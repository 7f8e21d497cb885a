import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { type EifParts, encodeEif, measureParts, sealImage } from '#enclave/image/eif.ts'
import { openImageSigner } from '#enclave/image/image-signature.ts'
import {
  ascii,
  buildImage,
  makeSigner,
  measurementOf,
  TYPE,
} from '../../attestation/eif/image-builder.ts'

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

describe('encodeEif', () => {
  it('encodeEif lays sections out, and measureParts measures them, as the official tools do', () => {
    fc.assert(
      fc.property(parts, (given) => {
        const sections = [
          { type: TYPE.kernel, data: given.kernel },
          { type: TYPE.cmdline, data: Buffer.from(given.cmdline) },
          { type: TYPE.metadata, data: Buffer.from(given.metadata) },
          ...given.ramdisks.map((data) => ({ type: TYPE.ramdisk, data })),
        ]
        expect(encodeEif(given)).toEqual(buildImage({ sections }))
        const [first = new Uint8Array(), ...others] = given.ramdisks
        const boot = [given.kernel, Buffer.from(given.cmdline), first]
        expect(measureParts(given)).toEqual({
          pcr0: measurementOf(...boot, ...others),
          pcr1: measurementOf(...boot),
          pcr2: measurementOf(...others),
        })
      }),
    )
  })

  it('encodeEif refuses an image without a ramdisk, and with more than a header has room for', () => {
    const given = { kernel: Uint8Array.of(1), cmdline: 'a', metadata: '{}', signature: null }
    expect(() => encodeEif({ ...given, ramdisks: [] })).toThrow(RangeError)
    expect(() =>
      encodeEif({ ...given, ramdisks: Array.from({ length: 30 }, () => Uint8Array.of(1)) }),
    ).toThrow(RangeError)
  })
})

const CONTENTS = {
  kernel: ascii('kernel'),
  cmdline: 'console',
  kernelVersion: '6.1',
  bootRamdisk: ascii('boot'),
  applicationRamdisk: ascii('application'),
  version: '1.0',
  commit: 'ab'.repeat(20),
  signer: null,
}
const made = makeSigner('P-384')
const key = ascii(String(made.privateKey.export({ type: 'pkcs8', format: 'pem' })))
const signer = openImageSigner({ key, certificate: made.pem })

async function measure(image: Uint8Array) {
  const chunks = (async function* () {
    yield image
  })()
  const { measurements, metadata } = await measureEif({ sizeBytes: image.length, chunks })
  const { pcr0, pcr1, pcr2, pcr8 } = measurements
  const registers = { PCR0: encodeHex(pcr0), PCR1: encodeHex(pcr1), PCR2: encodeHex(pcr2) }
  return {
    registers: pcr8 === null ? registers : { ...registers, PCR8: encodeHex(pcr8) },
    metadata,
  }
}

describe('sealImage', () => {
  it('sealImage states the measurements that the reader finds, signed or not', async () => {
    for (const given of [null, signer]) {
      const { eif, measurements } = sealImage({ ...CONTENTS, signer: given })
      expect((await measure(eif)).registers).toEqual(measurements)
      expect('PCR8' in measurements).toBe(given !== null)
    }
  })

  it('sealImage does not change PCR0, 1 and 2 by signing', () => {
    const { PCR8, ...rest } = sealImage({ ...CONTENTS, signer }).measurements
    expect(rest).toEqual(sealImage(CONTENTS).measurements)
    expect(PCR8).toMatch(/^[0-9a-f]{96}$/)
  })

  it("sealImage writes the members of the official tools' metadata, with no time in them", async () => {
    const { metadata } = await measure(sealImage(CONTENTS).eif)
    expect(Object.keys(metadata ?? {})).toEqual([
      'ImageName',
      'ImageVersion',
      'BuildMetadata',
      'DockerInfo',
      'CustomMetadata',
    ])
    expect(metadata?.BuildMetadata).toMatchObject({
      BuildTime: '1970-01-01T00:00:00+00:00',
      KernelVersion: '6.1',
    })
  })
})
