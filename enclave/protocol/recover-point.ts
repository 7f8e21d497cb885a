import { recover } from 'tiny-secp256k1'
import type { PointRecovery } from '../../attestation/account.ts'

/**
 * libsecp256k1 as WebAssembly, which also signs: it takes a tenth of the time that JavaScript
 * numbers take (test/bench/signing.ts). Beside the protocol because both ends check many signatures
 * of the other logs.
 */
export const recoverPoint: PointRecovery = ({ digest, compact, recoveryBit }) => {
  const point = recover(digest, compact, recoveryBit, false)
  if (point === null) throw new Error('expected r to be the x coordinate of a point')
  return point
}
