import { describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { compareImage } from '#src/web/verify/compare-image.ts'
import { NO_POLICY } from '#src/web/verify/job.ts'
import { readGivenPolicy } from '#src/web/verify/read-policy.ts'
import {
  buildImage,
  encodeSignatureSection,
  makeSigner,
  signRegister,
  TYPE,
  USUAL_SECTIONS,
} from '../../../attestation/eif/image-builder.ts'
import { buildEntry, buildRelease } from '../../../support/build-release.ts'

const UNSIGNED = buildImage({ sections: USUAL_SECTIONS })
const { pcr0, pcr1, pcr2 } = await measure(UNSIGNED)
const signer = makeSigner('P-384')
const SIGNED = buildImage({
  sections: [
    ...USUAL_SECTIONS,
    {
      type: TYPE.signature,
      data: encodeSignatureSection(signer.pem, signRegister(signer, pcr0)),
    },
  ],
})
const { pcr8 } = await measure(SIGNED)
const RIGHT = { 0: encodeHex(pcr0), 1: encodeHex(pcr1), 2: encodeHex(pcr2) }
const SIGNER = encodeHex(pcr8 ?? new Uint8Array())
const WRONG = 'ab'.repeat(48)

async function measure(image: Uint8Array) {
  const chunks = new Blob([Uint8Array.from(image)]).stream()
  return (await measureEif({ sizeBytes: image.length, chunks })).measurements
}

/** Compares an image with these sets in the form of the page. */
async function check(image: Uint8Array, ...sets: readonly Readonly<Record<number, string>>[]) {
  const written = sets.map((set) =>
    Object.entries(set).map(([index, value]) => `PCR${index}=${value}`),
  )
  const measurements = written.map((lines) => lines.join('\n')).join('\n\n')
  const { expected } = await readGivenPolicy({ ...NO_POLICY, measurements })
  return compareImage(await measure(image), expected.attestation, Date.now())
}

describe('an image on the page /verify', () => {
  it('an image is compared with every register of a set, its signer too', async () => {
    expect(await check(SIGNED)).toEqual({ kind: 'not asked' })
    expect(await check(SIGNED, { ...RIGHT, 8: SIGNER })).toEqual({ kind: 'same' })
    expect(await check(SIGNED, { 8: SIGNER })).toEqual({ kind: 'same' })
    expect(await check(UNSIGNED, RIGHT)).toEqual({ kind: 'same' })
    expect(await check(UNSIGNED, { ...RIGHT, 8: '00'.repeat(48) })).toEqual({ kind: 'same' })
    for (const index of [0, 1, 2, 8])
      expect(await check(SIGNED, { ...RIGHT, 8: SIGNER, [index]: WRONG })).toEqual({
        kind: 'other',
      })
    expect(await check(UNSIGNED, { 8: WRONG })).toEqual({ kind: 'other' })
    expect(await check(UNSIGNED, { ...RIGHT, 8: SIGNER })).toEqual({ kind: 'other' })
  })

  it('a register that no image has is named as not compared, whatever its value', async () => {
    for (let index = 0; index < 32; index += 1) {
      if ([0, 1, 2, 8].includes(index)) continue
      const open = { kind: 'open', registers: [index] }
      expect(await check(SIGNED, { [index]: WRONG })).toEqual(open)
      expect(await check(SIGNED, { ...RIGHT, [index]: '00'.repeat(48) })).toEqual(open)
      expect(await check(SIGNED, { 0: WRONG, [index]: WRONG })).toEqual({ kind: 'other' })
    }
    expect(await check(SIGNED, { 3: WRONG }, RIGHT)).toEqual({ kind: 'same' })
    expect(await check(SIGNED, { 0: WRONG }, { 3: WRONG })).toMatchObject({ kind: 'open' })
  })

  it('an image of a release that is not accepted now is not what the reader expects', () => {
    const image = { pcr0, pcr1, pcr2, pcr8: null }
    const release = buildRelease({
      measurements: { PCR0: RIGHT[0], PCR1: RIGHT[1], PCR2: RIGHT[2] },
    })
    const compare = (entry: Parameters<typeof buildEntry>[0], found = image) =>
      compareImage(
        found,
        { measurements: [], releases: [buildEntry({ release, ...entry })] },
        Date.now(),
      )
    expect(compare({}).kind).toBe('same')
    expect(compare({}, { ...image, pcr1: pcr2 }).kind).toBe('other')
    const revoked = { at: '2026-01-01T00:00:00Z', reason: 'a flaw' }
    expect(compare({ revoked })).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('a flaw'),
    })
  })
})
