import { parseArgs } from 'node:util'
import { createVitest } from 'vitest/node'

/**
 * Runs test files of the folder `--root` when its parent says so: a message `{ changed, tests }`
 * gets the first failure, or null. A process of its own, since a seeded fault can hang it.
 */
export type Order = { readonly changed: string; readonly tests: readonly string[] }
export type Failure = {
  /** Path of the test file; empty when the failure belongs to none. */
  readonly file: string
  readonly title: string
}
export type Answer = { readonly failed: Failure | null }

/** What hangs is found after a short wait; the tests' own limits are for busy machines. */
const TIMES = { testTimeout: 20_000, hookTimeout: 40_000, pollTimeout: 8_000 }

const { values } = parseArgs({ options: { root: { type: 'string' } } })
const { root } = values
if (root === undefined) throw new Error('usage: run-tests.ts --root=FOLDER')
process.chdir(root)
const vitest = await createVitest('test', {
  root,
  project: ['unit', 'integration'],
  bail: 1,
  watch: false,
  reporters: [{}],
})
await vitest.standalone()
for (const { config } of vitest.projects) {
  config.testTimeout = TIMES.testTimeout
  config.hookTimeout = TIMES.hookTimeout
  config.maxWorkers = 1
  if (config.expect.poll !== undefined) config.expect.poll.timeout = TIMES.pollTimeout
}
process.on('message', ({ changed, tests }: Order) => {
  run(changed, tests).then(
    (answer) => process.send?.(answer),
    (error: unknown) =>
      process.send?.({ failed: { file: '', title: `the run broke down: ${error}` } }),
  )
})
process.send?.('ready')

async function run(changed: string, tests: readonly string[]): Promise<Answer> {
  vitest.invalidateFile(changed)
  const specifications = tests.flatMap((test) => vitest.getModuleSpecifications(test))
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications)
  for (const module of testModules) {
    const file = module.moduleId
    for (const test of module.children.allTests('failed'))
      return { failed: { file, title: test.fullName } }
    const suite = [...module.children.allSuites()].find((one) => one.errors().length > 0)
    if (suite !== undefined) return { failed: { file, title: suite.fullName } }
    if (module.errors().length > 0) return { failed: { file, title: 'the file cannot be loaded' } }
  }
  const isBroken = unhandledErrors.length > 0
  return { failed: isBroken ? { file: '', title: 'an error outside of the tests' } : null }
}
