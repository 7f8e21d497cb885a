import { createHash } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compressGzip } from '#enclave/image/cpio.ts'

describe('compressGzip', () => {
  it('compressGzip gives bytes that gunzip turns back into the original bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 5_000 }), (bytes) => {
        expect(new Uint8Array(gunzipSync(compressGzip(bytes)))).toEqual(bytes)
      }),
    )
  })

  it('compressGzip gives the same fixed bytes wherever it runs', () => {
    const text = Array.from({ length: 20_000 }, (_, index) => `${(index * 7919) % 10_007},`).join(
      '',
    )
    const bytes = compressGzip(new TextEncoder().encode(text))
    expect(Buffer.from(bytes.subarray(0, 10)).toString('hex')).toBe('1f8b08000000000000ff')
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      'e2f8007f70af6119b6bf4aeebda52fa0035a6c42402b636f305389acc755f0d5',
    )
  })
})
