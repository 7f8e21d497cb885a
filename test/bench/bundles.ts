import { performance } from 'node:perf_hooks'
import { secp256k1 } from '@noble/curves/secp256k1.js'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { buildEvidence } from '../attestation/evidence/build-evidence.ts'

/**
 * `node test/bench/bundles.ts`: evidence bundles verified per second on one thread, from their text
 * to the verdict `verified`: cold, and warm (the certificate chain of their enclave is known). The
 * floor is the signatures alone, with keys imported beforehand: 5 of P-384 cold and 1 warm by
 * WebCrypto, and 3 recoveries by noble (record, head, transaction). All are measured in turns in
 * one run, so that other load on the machine affects all alike.
 */
const ROUNDS = 150
const WARM_UP_ROUNDS = 30

if (import.meta.main) await report()

async function report(): Promise<void> {
  const { bytes, medians } = await measureBundles(ROUNDS)
  console.log(`${bytes} bytes a bundle, ${ROUNDS} rounds, medians`)
  for (const [name, ms] of medians)
    console.log(`  ${name.padEnd(28)} ${ms.toFixed(2)} ms, ${(1_000 / ms).toFixed(0)} per second`)
  for (const kind of ['cold', 'warm'] as const)
    console.log(
      `  ${kind} takes ${overSignatures(medians, kind).toFixed(2)} × its signatures alone`,
    )
}

type Medians = ReadonlyMap<string, number>

/** The time of a bundle as a multiple of its signatures alone. */
export function overSignatures(medians: Medians, kind: 'cold' | 'warm'): number {
  return (medians.get(`${kind}: bundle`) ?? 0) / (medians.get(`${kind}: its signatures alone`) ?? 0)
}

/** Median milliseconds of each, over `rounds` rounds. */
export async function measureBundles(
  rounds: number,
): Promise<{ readonly bytes: number; readonly medians: Medians }> {
  const { bundle, policy, chain } = buildEvidence()
  const text = new TextEncoder().encode(JSON.stringify(bundle))
  const attestations = createAttestationVerifier()
  const verifyP384 = await bareP384()
  const recoverSecp256k1 = bareRecovery()
  const judge = async (context: Parameters<typeof verifyBundle>[2]) => {
    const { verdict } = await verifyBundle(parseExactJson(text), policy, context)
    if (verdict !== 'verified')
      throw new Error(`expected the bundle to be verified, got ${verdict}`)
  }
  const runFloor = async (p384Count: number) => {
    for (let count = 0; count < p384Count; count++) await verifyP384()
    for (let count = 0; count < 3; count++) recoverSecp256k1()
  }
  const subjects = {
    'cold: bundle': () => judge({ chain }),
    'cold: its signatures alone': () => runFloor(5),
    'warm: bundle': () => judge({ chain, attestations }),
    'warm: its signatures alone': () => runFloor(1),
  }
  const times = new Map<string, number[]>()
  for (let round = 0; round < WARM_UP_ROUNDS + rounds; round++) {
    for (const [name, run] of Object.entries(subjects)) {
      const start = performance.now()
      await run()
      if (round >= WARM_UP_ROUNDS)
        times.set(name, [...(times.get(name) ?? []), performance.now() - start])
    }
  }
  const medians = new Map([...times].map(([name, list]) => [name, medianOf(list)]))
  return { bytes: text.length, medians }
}

async function bareP384(): Promise<() => Promise<void>> {
  const { subtle } = globalThis.crypto
  const pair = await subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, [
    'sign',
    'verify',
  ])
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  const data = new Uint8Array(5_000)
  const signature = await subtle.sign(algorithm, pair.privateKey, data)
  return async () => {
    if (!(await subtle.verify(algorithm, pair.publicKey, signature, data)))
      throw new Error('expected it to hold')
  }
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
