import { sha384 } from '@noble/hashes/sha2.js'

/** node:crypto's Hash has this form. */
export type RunningHash = {
  update(bytes: Uint8Array): unknown
  /** The copy and the original change independently. */
  copy(): RunningHash
  /** Ends the hash and returns its 48 bytes. */
  digest(): Uint8Array
}

/** Hash functions. The defaults run everywhere, and native functions are faster. */
export type Digests = {
  /** In Node: `() => createHash('sha384')` */
  readonly sha384: () => RunningHash
  /** CRC-32 (IEEE) of `bytes` after bytes whose CRC is `previous`. In Node: `zlib.crc32` */
  readonly crc32: (bytes: Uint8Array, previous: number) => number
}

/** Digests in plain JavaScript. */
export const PORTABLE_DIGESTS: Digests = { sha384: () => wrap(sha384.create()), crc32: updateCrc32 }

type NobleHash = ReturnType<typeof sha384.create>

function wrap(hash: NobleHash): RunningHash {
  return {
    update: (bytes) => hash.update(bytes),
    copy: () => wrap(hash.clone()),
    digest: () => hash.digest(),
  }
}

/** Reflected polynomial of CRC-32/ISO-HDLC. */
const CRC_POLYNOMIAL = 0xedb88320

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ CRC_POLYNOMIAL : value >>> 1
  return value
})

function updateCrc32(bytes: Uint8Array, previous: number): number {
  let crc = ~previous
  for (const byte of bytes) crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ byte) & 0xff] ?? 0)
  return ~crc >>> 0
}
