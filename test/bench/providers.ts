import { availableParallelism } from 'node:os'
import { performance } from 'node:perf_hooks'
import { importPoint, P256, verifyEcdsa } from '../../attestation/nitro/ecdsa.ts'
import { requireChecks } from '../../attestation/providers/provider-checks.ts'
import { verifyTdxQuote } from '../../attestation/providers/tdx/verify-tdx-quote.ts'
import { generateKey, publicKeyInfo } from '../support/nitro-builder/certificate-builder.ts'
import { MADE_AT } from '../support/nitro-builder/development-pki.ts'
import { buildTdxEvidence, signRaw, TDX_POLICY } from '../support/provider-builder/tdx-builder.ts'

/**
 * `node test/bench/providers.ts`: a cold judgement of a TDX quote with its collateral, against a
 * floor of bare WebCrypto verifications of P-256 signatures, with keys imported beforehand, one
 * after the other: 10 signatures (2 links of the PCK chain, QE report, quote, 2 TCB signing
 * certificates, TCB info, QE identity, 2 lists). Measured in turns in one run. Figures are medians.
 */
const ROUNDS = 300
const WARM_UP_ROUNDS = 100
const SIGNATURES = 10

const evidence = buildTdxEvidence()
const pair = generateKey('P-256')
const data = new Uint8Array(632)
const signature = signRaw(pair, data)
const key = await importPoint(publicKeyInfo(pair).slice(-65), P256)
if (key === null) throw new Error('expected a key')

const subjects = {
  [`floor, ${SIGNATURES} bare verifications`]: async () => {
    for (let count = 0; count < SIGNATURES; count++) await verifyEcdsa({ key, signature, data })
  },
  'cold TDX judgement': async () => {
    requireChecks((await verifyTdxQuote(evidence, TDX_POLICY, MADE_AT)).checks)
  },
}

const times = new Map<string, number[]>()
for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++)
  for (const [name, run] of Object.entries(subjects)) {
    const start = performance.now()
    await run()
    if (round >= WARM_UP_ROUNDS)
      times.set(name, [...(times.get(name) ?? []), performance.now() - start])
  }

console.log(`${availableParallelism()} cores, ${evidence.quote.length} bytes, ${ROUNDS} rounds`)
const medians = [...times].map(([name, list]) => {
  const median = list.toSorted((one, other) => one - other)[list.length >> 1] ?? 0
  console.log(`${name.padEnd(32)} ${median.toFixed(3)} ms`)
  return median
})
console.log(`ratio ${((medians[1] ?? 0) / (medians[0] ?? 1)).toFixed(2)}`)
