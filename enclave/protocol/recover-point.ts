import { recover } from 'tiny-secp256k1'
import type { PointRecovery } from '#attestation/account.ts'

/**
 * Recovers a point with libsecp256k1 as WebAssembly, ten times as fast as plain JavaScript
 * (test/bench/signing.ts). Gateway and enclave share it, because both check many signatures of
 * other logs.
 */
export const recoverPoint: PointRecovery = ({ digest, compact, recoveryBit }) => {
  const point = recover(digest, compact, recoveryBit, false)
  if (point === null) throw new Error('expected r to be the x coordinate of a point')
  return point
}
