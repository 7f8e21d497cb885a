import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { Digests } from '../../attestation/eif/digests.ts'

/** Node's own digests for measuring images: OpenSSL's SHA-384 and zlib's CRC-32. */
export const NODE_DIGESTS: Digests = { sha384: () => createHash('sha384'), crc32 }
