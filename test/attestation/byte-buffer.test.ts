import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ByteBuffer } from '#attestation/byte-buffer.ts'

it('a ByteBuffer gives back what was appended, in order, and starts anew after each take', () => {
  const parts = fc.array(fc.uint8Array({ maxLength: 3000 }), { maxLength: 8 })
  fc.assert(
    fc.property(fc.array(parts, { maxLength: 3 }), (rounds) => {
      const buffer = new ByteBuffer()
      for (const round of rounds) {
        for (const part of round) buffer.append(part)
        const whole = Buffer.concat(round)
        expect(buffer.length).toBe(whole.length)
        expect(Buffer.from(buffer.take())).toEqual(whole)
        expect(buffer.length).toBe(0)
      }
    }),
  )
})

it('a ByteBuffer never writes into a part that it was given or into bytes that it gave', () => {
  const buffer = new ByteBuffer()
  const first = new Uint8Array([1, 2, 3])
  const view = first.subarray(0, 2)
  buffer.append(view)
  buffer.append(new Uint8Array([9]))
  const taken = buffer.take()
  buffer.append(new Uint8Array([7]))
  buffer.append(new Uint8Array([8]))
  expect([...first]).toEqual([1, 2, 3])
  expect([...taken]).toEqual([1, 2, 9])
})

it('a ByteBuffer takes many single bytes without a list of them', () => {
  const buffer = new ByteBuffer()
  for (let count = 0; count < 200_000; count++) buffer.append(Uint8Array.of(count & 255))
  const bytes = buffer.take()
  expect(bytes).toHaveLength(200_000)
  expect(bytes[199_999]).toBe(199_999 & 255)
  expect(bytes.buffer.byteLength).toBeLessThanOrEqual(2 * 200_000 + 1024)
})
