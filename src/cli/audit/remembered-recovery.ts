import type { PointRecovery } from '../../../attestation/account.ts'
import { encodeHex } from '../../../attestation/bytes.ts'

/** Signatures that are remembered: all records under one head carry that head's, one after the other. */
export const RECOVERIES_MAX = 64

/** Gives `recover`, which remembers what it was asked last. The same digest and signature have the same signer. */
export function rememberRecoveries(recover: PointRecovery): PointRecovery {
  const known = new Map<string, Uint8Array>()
  return (signed) => {
    const key = `${encodeHex(signed.digest)}${encodeHex(signed.compact)}${signed.recoveryBit}`
    const point = known.get(key) ?? recover(signed)
    known.delete(key)
    known.set(key, point)
    const [oldest] = known.keys()
    if (known.size > RECOVERIES_MAX && oldest !== undefined) known.delete(oldest)
    return point
  }
}
