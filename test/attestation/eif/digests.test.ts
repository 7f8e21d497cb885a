import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { PORTABLE_DIGESTS } from '#attestation/eif/digests.ts'

it('the portable CRC-32 has the published check value', () => {
  expect(PORTABLE_DIGESTS.crc32(Buffer.from('123456789'), 0)).toBe(0xcbf43926)
})

it('the portable digests agree with those of Node for all bytes and however they are split', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 400 }),
      fc.uint8Array({ maxLength: 400 }),
      (head, tail) => {
        expect(PORTABLE_DIGESTS.crc32(tail, PORTABLE_DIGESTS.crc32(head, 0))).toBe(
          crc32(tail, crc32(head)),
        )
        const hash = PORTABLE_DIGESTS.sha384()
        hash.update(head)
        const early = hash.copy()
        hash.update(tail)
        expect(Buffer.from(hash.digest())).toEqual(
          createHash('sha384').update(head).update(tail).digest(),
        )
        expect(Buffer.from(early.digest())).toEqual(createHash('sha384').update(head).digest())
      },
    ),
  )
})
