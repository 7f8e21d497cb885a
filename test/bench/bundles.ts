import { performance } from 'node:perf_hooks'
import { secp256k1 } from '@noble/curves/secp256k1.js'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { buildEvidence } from '../attestation/evidence/build-evidence.ts'
import { bareVerification } from './floor.ts'

const WARM_UP_ROUNDS = 30

/**
 * The time of a bundle, from its text to the verdict `verified` on one thread, as a multiple of its
 * signatures alone. Nothing about its enclave is known beforehand. The floor is 5 verifications of
 * P-384 by WebCrypto, with keys imported beforehand, and 3 recoveries by noble (record, head,
 * transaction). Both are measured in turns, so that other load on the machine affects both alike.
 */
export async function measureBundles(rounds: number): Promise<number> {
  const { bundle, policy, chain } = buildEvidence()
  const text = new TextEncoder().encode(JSON.stringify(bundle))
  const verifyP384 = await bareVerification(5_000)
  const recoverSecp256k1 = bareRecovery()
  const judge = async () => {
    const { verdict } = await verifyBundle(parseExactJson(text), policy, { chain })
    if (verdict !== 'verified')
      throw new Error(`expected the bundle to be verified, got ${verdict}`)
  }
  const runFloor = async () => {
    for (let count = 0; count < 5; count++) await verifyP384()
    for (let count = 0; count < 3; count++) recoverSecp256k1()
  }
  const [judged, floor]: [number[], number[]] = [[], []]
  for (let round = 0; round < WARM_UP_ROUNDS + rounds; round++) {
    const taken = [await timed(judge), await timed(runFloor)] as const
    if (round < WARM_UP_ROUNDS) continue
    judged.push(taken[0])
    floor.push(taken[1])
  }
  return medianOf(judged) / medianOf(floor)
}

async function timed(run: () => Promise<void>): Promise<number> {
  const start = performance.now()
  await run()
  return performance.now() - start
}

function bareRecovery(): () => void {
  const secretKey = secp256k1.utils.randomSecretKey()
  const digest = crypto.getRandomValues(new Uint8Array(32))
  const signature = secp256k1.sign(digest, secretKey, { prehash: false, format: 'recovered' })
  return () => {
    secp256k1.recoverPublicKey(signature, digest, { prehash: false })
  }
}

function medianOf(list: readonly number[]): number {
  const sorted = list.toSorted((left, right) => left - right)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
