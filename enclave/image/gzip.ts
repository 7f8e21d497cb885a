import { crc32 } from 'node:zlib'
import { deflateSync } from 'fflate'

/**
 * Gives `bytes` as a gzip file (RFC 1952) without name and time. The deflate is plain JavaScript: zlib's output
 * changes with its version and with the instructions that a processor has, and these bytes are measured.
 */
export function compressGzip(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  // fflate would choose `mem` by a logarithm, which JavaScript does not define to the last bit.
  const deflated = deflateSync(bytes, { level: 6, mem: 12 })
  const trailer = Buffer.alloc(8)
  trailer.writeUInt32LE(crc32(bytes), 0)
  trailer.writeUInt32LE(bytes.length % 2 ** 32, 4)
  return new Uint8Array(Buffer.concat([HEADER, deflated, trailer]))
}

/** Magic, deflate, no flags, no time, no extra flags, unknown system. */
const HEADER = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)
