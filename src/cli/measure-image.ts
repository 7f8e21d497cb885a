import { createHash } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import type { Digests } from '../../attestation/eif/digests.ts'

/** Small enough that a chunk stays in the processor's cache while it is digested more than once. */
export const FILE_CHUNK_BYTES = 131_072

/**
 * Gives the bytes of an open file from its start, the next chunk being read while one is used. Memory stays the same
 * however large the file is: a chunk is overwritten two chunks later, so whoever keeps bytes has to copy them.
 */
export async function* readFileChunks(file: FileHandle): AsyncGenerator<Uint8Array, void, undefined> {
  const read = async (buffer: Uint8Array, position: number) => {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position)
    return buffer.subarray(0, bytesRead)
  }
  let [current, spare] = [new Uint8Array(FILE_CHUNK_BYTES), new Uint8Array(FILE_CHUNK_BYTES)]
  let position = 0
  let pending = read(current, position)
  try {
    while (true) {
      const chunk = await pending
      if (chunk.length === 0) return
      position += chunk.length
      ;[current, spare] = [spare, current]
      pending = read(current, position)
      yield chunk
    }
  } finally {
    // The consumer may stop early; the file must not be closed under a read that is still under way.
    await pending.catch(() => undefined)
  }
}

/** Node's own digests for measuring images: OpenSSL's SHA-384 and zlib's CRC-32. */
export const NODE_DIGESTS: Digests = { sha384: () => createHash('sha384'), crc32 }
