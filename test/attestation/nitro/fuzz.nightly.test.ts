import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { fuzzAttestation } from '../../support/nitro-fuzz/fuzz.ts'

/** The largest growth of the heap at the end, over its size after a tenth of the documents. */
const GROWTH_BYTES_MAX = 8 * 2 ** 20

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

it('100,000 mutated documents are refused with our error, quickly and without more memory', {
  timeout: 7_200_000,
}, async () => {
  const samples: number[] = []
  const { failures } = await fuzzAttestation({
    documents: 100_000,
    seed: Date.now(),
    onProgress(done) {
      if (done % 10_000 === 0) samples.push(memoryInUse())
    },
  })
  expect(failures).toEqual([])
  expect((samples.at(-1) ?? 0) - (samples[0] ?? 0)).toBeLessThan(GROWTH_BYTES_MAX)
})

function memoryInUse(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
