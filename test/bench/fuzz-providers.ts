import { parseArgs } from 'node:util'
import { fuzzEvidence } from '../support/evidence-fuzz.ts'
import { fuzzProviders } from '../support/hardware-fuzz.ts'
import { fuzzProviderEvidence } from '../support/provider-fuzz.ts'

/**
 * `node test/bench/fuzz-providers.ts [--documents 100000] [--seed N]`: the long form of the fuzz
 * tests of attestation/providers. Makes so many mutants of each: quotes with event logs, reports
 * with device evidence, evidence documents. Exit code 1 for any fault.
 */
const { values } = parseArgs({
  options: {
    documents: { type: 'string', default: '100000' },
    seed: { type: 'string', default: String(Date.now()) },
  },
})
const count = Number(values.documents)
const seed = Number(values.seed)

const RUNS = {
  'quotes and event logs': () => fuzzProviderEvidence(count, seed),
  'reports and device evidence': () => fuzzProviders({ count, seed }),
  'evidence documents': () => fuzzEvidence(count, seed),
}

for (const [what, run] of Object.entries(RUNS)) {
  const start = performance.now()
  const { failures } = await run()
  const seconds = (performance.now() - start) / 1000
  console.log(
    `${count} mutants of ${what}, seed ${seed}: ${failures.length} faults, ${seconds.toFixed(0)} s`,
  )
  for (const failure of failures) console.error(`FAILED ${failure}`)
  if (failures.length > 0) process.exitCode = 1
}
