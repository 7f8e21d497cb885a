import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PORTABLE_DIGESTS } from '#attestation/eif/digests.ts'
import { createRegisters, extendZero } from '#attestation/eif/measure-eif.ts'
import { measurementOf } from './image-builder.ts'

const NODE_DIGESTS = { sha384: () => createHash('sha384'), crc32 }

describe('createRegisters', () => {
  it('boot and application bytes in any order are measured as the definition says', () => {
    const piece = fc.record({ isBoot: fc.boolean(), bytes: fc.uint8Array({ maxLength: 50 }) })
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        fc.constantFrom(NODE_DIGESTS, PORTABLE_DIGESTS),
        (pieces, digests) => {
          const registers = createRegisters(digests)
          for (const { isBoot, bytes } of pieces)
            if (isBoot) registers.addBoot(bytes)
            else registers.addApplication(bytes)
          const of = (wanted: boolean) =>
            pieces.filter(({ isBoot }) => isBoot === wanted).map(({ bytes }) => bytes)
          expect(registers.finish()).toEqual({
            pcr0: measurementOf(...pieces.map(({ bytes }) => bytes)),
            pcr1: measurementOf(...of(true)),
            pcr2: measurementOf(...of(false)),
          })
        },
      ),
    )
  })

  it('boot bytes are hashed once as long as no application byte has come', () => {
    let hashed = 0
    const counting = (
      hash: ReturnType<typeof PORTABLE_DIGESTS.sha384>,
    ): ReturnType<typeof PORTABLE_DIGESTS.sha384> => ({
      update: (bytes) => {
        hashed += bytes.length
        return hash.update(bytes)
      },
      copy: () => counting(hash.copy()),
      digest: () => hash.digest(),
    })
    const registers = createRegisters({
      ...NODE_DIGESTS,
      sha384: () => counting(createHash('sha384')),
    })
    registers.addBoot(new Uint8Array(1000))
    expect(hashed).toBe(1000)
    registers.addApplication(new Uint8Array(10))
    expect(hashed).toBe(1020)
  })

  it('an image without an application has the well-known hash of nothing as PCR2', () => {
    const { pcr2 } = createRegisters(PORTABLE_DIGESTS).finish()
    expect(Buffer.from(pcr2).toString('hex')).toMatch(/^21b9efbc/)
  })
})

describe('extendZero', () => {
  it('extendZero gives SHA384(48 zero bytes || digest)', () => {
    const digest = createHash('sha384').update('x').digest()
    expect(extendZero(digest, PORTABLE_DIGESTS)).toEqual(measurementOf(Buffer.from('x')))
  })
})
