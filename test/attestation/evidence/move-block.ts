import { decodeRlp, encodeRlp, keccak256, toBeHex } from 'ethers'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'

/** Place of the timestamp in a header. */
const TIMESTAMP = 11

/**
 * The bundle with its block at another time, Unix seconds, and the hash of that block: what anyone
 * can write.
 */
export function moveBlock(bundle: EvidenceBundle, timestamp: number): EvidenceBundle {
  if (bundle.block === null) throw new Error('expected a block')
  const fields = decodeRlp(bundle.block.header)
  if (!Array.isArray(fields)) throw new Error('expected a header')
  const header = encodeRlp(fields.with(TIMESTAMP, toBeHex(timestamp)))
  return { ...bundle, block: { ...bundle.block, header, hash: keccak256(header) } }
}
