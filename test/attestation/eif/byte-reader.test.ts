import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createByteReader } from '#attestation/eif/measure-eif.ts'

async function* stream(...chunks: readonly Uint8Array[]) {
  yield* chunks
}
const changed = { name: 'EifError', code: 'source_changed' }

describe('createByteReader', () => {
  it('a byte reader gives the same bytes however they are chunked and taken', async () => {
    const parts = fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 10 })
    await fc.assert(
      fc.asyncProperty(parts, fc.array(fc.nat(30), { maxLength: 10 }), async (chunks, lengths) => {
        const whole = Buffer.concat(chunks)
        const reader = createByteReader(stream(...chunks))
        let position = 0
        for (const length of lengths) {
          if (position + length > whole.length) {
            await expect(reader.take(length)).rejects.toMatchObject(changed)
            return
          }
          expect(Buffer.from(await reader.take(length))).toEqual(
            whole.subarray(position, position + length),
          )
          position += length
        }
        if (position < whole.length) await expect(reader.expectEnd()).rejects.toMatchObject(changed)
        else await reader.expectEnd()
      }),
    )
  })

  it('a byte reader gives bytes of its own, which a reused chunk does not change', async () => {
    const buffer = Uint8Array.of(1, 2, 3)
    const reader = createByteReader(stream(buffer))
    const taken = await reader.take(2)
    buffer.fill(9)
    expect(taken).toEqual(Uint8Array.of(1, 2))
  })

  it('a byte reader passes pieces on without copying them', async () => {
    const buffer = new Uint8Array(100)
    const pieces: Uint8Array[] = []
    await createByteReader(stream(buffer)).forEach(60, (piece) => pieces.push(piece))
    expect(pieces.map((piece) => [piece.buffer === buffer.buffer, piece.length])).toEqual([
      [true, 60],
    ])
  })
})
