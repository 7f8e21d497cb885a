import { secp256k1 } from '@noble/curves/secp256k1.js'
import { recover, signRecoverable } from 'tiny-secp256k1'

/**
 * `node test/bench/signing.ts`: the cost of one signature, in the enclave's library and in the
 * third parties' library: CPU milliseconds each, in the same run.
 */
const secretKey = secp256k1.utils.randomSecretKey()
const publicKey = secp256k1.getPublicKey(secretKey)
const digest = crypto.getRandomValues(new Uint8Array(32))
const { signature, recoveryId } = signRecoverable(digest, secretKey)

export function benchSigning(): void {
  const sign = measure(1_000, () => signRecoverable(digest, secretKey))
  const signNoble = measure(300, () => secp256k1.sign(digest, secretKey, { prehash: false }))
  const check = measure(500, () => recover(digest, signature, recoveryId, false))
  const checkNoble = measure(100, () =>
    secp256k1.verify(signature, digest, publicKey, { prehash: false }),
  )
  console.log(
    `sign    libsecp256k1 ${sign.toFixed(3)} ms  noble ${signNoble.toFixed(3)} ms  ratio ${(sign / signNoble).toFixed(2)}`,
  )
  console.log(
    `verify  libsecp256k1 ${check.toFixed(3)} ms  noble ${checkNoble.toFixed(3)} ms  ratio ${(check / checkNoble).toFixed(2)}`,
  )
}

/** CPU milliseconds of one run, after a quarter of the runs to warm up. */
function measure(runs: number, run: () => unknown): number {
  for (let turn = 0; turn < runs / 4; turn += 1) run()
  const before = process.cpuUsage()
  for (let turn = 0; turn < runs; turn += 1) run()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000 / runs
}
