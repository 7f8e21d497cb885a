import { availableParallelism } from 'node:os'
import { performance } from 'node:perf_hooks'
import { decodeCose } from '#attestation/nitro/cose.ts'
import { parseDocument } from '#attestation/nitro/document.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import { MADE_AT } from '../support/nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../support/nitro-builder/document-builder.ts'
import { bareVerification } from './floor.ts'

/**
 * `node test/bench/attestation.ts`: cold and warm validation of a document with a chain of five
 * certificates, against a floor of bare WebCrypto verifications of P-384 signatures, with keys
 * imported beforehand, one after the other: 5 cold (4 links and the document), 1 warm (the
 * document). Validation verifies two links of the chain at a time, so with an idle second core it
 * may take less than its floor; the CPU time beside it shows its real cost. All are measured in
 * turns in one run, so that other load on the machine affects all alike. Figures are medians.
 */
const ROUNDS = 300
const WARM_UP_ROUNDS = 100

const policy: AttestationPolicy = { measurements: 'any', roots: [standardChain.rootSha256] }
const document = buildDocument()
const verifier = createAttestationVerifier()
const verifyBare = await bareVerification(document.length)

const subjects = {
  'floor, 5 bare verifications': async () => {
    for (let count = 0; count < 5; count++) await verifyBare()
  },
  'cold, nothing known': async () => await verifyAttestation(document, policy, MADE_AT),
  'floor, 1 bare verification': verifyBare,
  'warm, chain known': async () => await verifier.verify(document, policy, MADE_AT),
  'decoding and parsing alone': async () => parseDocument(decodeCose(document).payload),
}

const times = new Map<string, number[]>()
const cpuTimes = new Map<string, number[]>()
for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
  for (const [name, run] of Object.entries(subjects)) {
    const cpu = process.cpuUsage()
    const start = performance.now()
    await run()
    const tookMs = performance.now() - start
    const { user, system } = process.cpuUsage(cpu)
    if (round < WARM_UP_ROUNDS) continue
    times.set(name, [...(times.get(name) ?? []), tookMs])
    cpuTimes.set(name, [...(cpuTimes.get(name) ?? []), (user + system) / 1000])
  }
}

const medianOf = (name: keyof typeof subjects) => quantile(times.get(name) ?? [], 0.5)
console.log(
  `${availableParallelism()} cores, ${document.length} bytes, ${ROUNDS} rounds; ms: median (p10 to p90)`,
)
for (const [name, list] of times) {
  const [low, middle, high] = [0.1, 0.5, 0.9].map((share) => quantile(list, share).toFixed(3))
  const cpu = quantile(cpuTimes.get(name) ?? [], 0.5).toFixed(3)
  console.log(`  ${name.padEnd(30)} ${middle} (${low} to ${high}), CPU ${cpu}`)
}
const cold = medianOf('cold, nothing known') / medianOf('floor, 5 bare verifications')
const warm = medianOf('warm, chain known') / medianOf('floor, 1 bare verification')
console.log(
  `  cold is ${cold.toFixed(2)} × its floor (aim: at most 1.25), warm ${warm.toFixed(2)} × (aim: at most 1.50)`,
)

function quantile(list: readonly number[], share: number): number {
  return list.toSorted((left, right) => left - right)[Math.floor(list.length * share)] ?? Number.NaN
}
