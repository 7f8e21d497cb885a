import { expect, it } from 'vitest'
import { judgeRun } from './judge.ts'
import { readManifest } from './manifest.ts'
import { runCase } from './mutants/run-cases.ts'

/** The other kinds take a minute: they are slow tests (verifier-conformance). */
it('our command line gives each document of the vectors its verdict and its codes', async () => {
  const documents = readManifest().cases.filter(({ kind }) => kind === 'document')
  expect(documents.length).toBeGreaterThan(100)
  const different: object[] = []
  for (const one of documents) {
    const { differences } = judgeRun(one, await runCase(one), 'report')
    if (differences.length > 0) different.push({ name: one.name, differences })
  }
  expect(different).toEqual([])
})
