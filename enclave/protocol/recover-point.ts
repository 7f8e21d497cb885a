import { recover } from 'tiny-secp256k1'
import type { PointRecovery } from '../../attestation/account.ts'

/**
 * libsecp256k1 as WebAssembly, in a tenth of the time of plain JavaScript (test/bench/signing.ts).
 * It is in the protocol's folder because gateway and enclave check many signatures of other logs.
 */
export const recoverPoint: PointRecovery = ({ digest, compact, recoveryBit }) => {
  const point = recover(digest, compact, recoveryBit, false)
  if (point === null) throw new Error('expected r to be the x coordinate of a point')
  return point
}
