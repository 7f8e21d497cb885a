import { generateKeyPairSync, sign } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { performance } from 'node:perf_hooks'
import { requireChecks } from '../../attestation/providers/provider-checks.ts'
import { verifySnpReport } from '../../attestation/providers/snp/verify-snp-report.ts'
import { SNP_AT } from '../support/provider-builder/snp-pki.ts'
import { buildSnp } from '../support/provider-builder/snp-report-builder.ts'

/**
 * `node test/bench/snp.ts`: a cold judgement of a report by its VCEK, against a floor of its bare
 * WebCrypto verifications with keys imported beforehand: two of RSA-4096 (RSASSA-PSS) and one of
 * P-384. Both are measured in turns in one run, so that other load on the machine affects both
 * alike. Figures are medians.
 */
const ROUNDS = 300
const WARM_UP_ROUNDS = 100

const { evidence, policy } = buildSnp()
const { subtle } = globalThis.crypto
const verifyRsa = await bareRsa()
const verifyP384 = await bareP384()

const subjects = {
  'floor, 3 bare verifications': async () => {
    await verifyRsa()
    await verifyRsa()
    await verifyP384()
  },
  'cold, nothing known': async () =>
    requireChecks((await verifySnpReport(evidence, policy, SNP_AT)).checks),
}

const times = new Map<string, number[]>()
for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
  for (const [name, run] of Object.entries(subjects)) {
    const start = performance.now()
    await run()
    const tookMs = performance.now() - start
    if (round >= WARM_UP_ROUNDS) times.set(name, [...(times.get(name) ?? []), tookMs])
  }
}

console.log(`${availableParallelism()} cores, ${ROUNDS} rounds; ms: median (p10 to p90)`)
for (const [name, list] of times) {
  const [low, middle, high] = [0.1, 0.5, 0.9].map((share) => quantile(list, share).toFixed(3))
  console.log(`  ${name.padEnd(30)} ${middle} (${low} to ${high})`)
}
const [floor = Number.NaN, cold = Number.NaN] = [...times.values()].map((list) =>
  quantile(list, 0.5),
)
console.log(`  cold is ${(cold / floor).toFixed(2)} × its floor (aim: at most 1.30)`)

async function bareRsa(): Promise<() => Promise<void>> {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 4096 })
  const data = evidence.vek
  const padding = 6
  const signature = sign('sha384', data, { key: privateKey, padding, saltLength: 48 })
  const spki = publicKey.export({ type: 'spki', format: 'der' })
  const algorithm = { name: 'RSA-PSS', hash: 'SHA-384' }
  const key = await subtle.importKey('spki', spki, algorithm, false, ['verify'])
  return async () =>
    demand(await subtle.verify({ ...algorithm, saltLength: 48 }, key, signature, data))
}

async function bareP384(): Promise<() => Promise<void>> {
  const pair = await subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, [
    'sign',
    'verify',
  ])
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  const data = evidence.report.subarray(0, 0x2a0)
  const signature = await subtle.sign(algorithm, pair.privateKey, data)
  return async () => demand(await subtle.verify(algorithm, pair.publicKey, signature, data))
}

function demand(holds: boolean): void {
  if (!holds) throw new Error('expected it to hold')
}

function quantile(list: readonly number[], share: number): number {
  return list.toSorted((left, right) => left - right)[Math.floor(list.length * share)] ?? Number.NaN
}
