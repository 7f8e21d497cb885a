import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { fuzzAttestation, VALIDATION_MS_MAX } from '../support/nitro-fuzz/fuzz.ts'

/**
 * `node test/bench/fuzz-attestation.ts [--documents 100000] [--seed N]`: the long form of
 * fuzz.test.ts. Prints the outcomes of the documents, the slowest validation, and the memory in use
 * on the way. Exit code 1 for any fault.
 */
const { values } = parseArgs({
  options: {
    documents: { type: 'string', default: '100000' },
    seed: { type: 'string', default: String(Date.now()) },
  },
})
const documents = Number(values.documents)
const seed = Number(values.seed)

/** The largest growth of the heap at the end, over its size after a tenth of the documents. */
const GROWTH_BYTES_MAX = 8 * 2 ** 20

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')
const samples: number[] = []

const start = performance.now()
const report = await fuzzAttestation({
  documents,
  seed,
  onProgress(done) {
    if (done % Math.max(Math.floor(documents / 10_000) * 1000, 1000) === 0)
      samples.push(memoryInUse())
  },
})
const seconds = (performance.now() - start) / 1000

console.log(`${report.documents} mutated documents, seed ${seed}, ${seconds.toFixed(0)} s`)
console.log(`slowest validation ${report.slowestMs.toFixed(1)} ms (at most ${VALIDATION_MS_MAX})`)
console.log(`memory in use, MiB: ${samples.map((bytes) => (bytes / 2 ** 20).toFixed(1)).join(' ')}`)
print('accepted', report.accepted)
print('refused', report.refused)
const growth = (samples.at(-1) ?? 0) - (samples[0] ?? 0)
const failures = [
  ...report.failures,
  ...(growth > GROWTH_BYTES_MAX ? [`memory grew by ${growth} bytes`] : []),
]
for (const failure of failures) console.error(`FAILED ${failure}`)
if (failures.length > 0) process.exitCode = 1

function memoryInUse(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

function print(title: string, counts: ReadonlyMap<string, number>): void {
  console.log(`${title} ${[...counts.values()].reduce((sum, count) => sum + count, 0)}`)
  const sorted = [...counts].sort(([, left], [, right]) => right - left)
  for (const [name, count] of sorted) console.log(`  ${String(count).padStart(7)}  ${name}`)
}
