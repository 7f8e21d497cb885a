import { hash } from 'node:crypto'
import { type RunnerTestSuite, TestRunner } from 'vitest'
import { takeLeftTimers, watchTimers } from './leftovers.ts'

declare module 'vitest' {
  interface TaskMeta {
    /** CPU that the file's tests took in their own process, user and system, as on a quiet machine. */
    cpuSeconds?: number
    /** The lines of product code whose timers still run after the file's tests. */
    leftTimers?: readonly string[]
  }
}

/**
 * Runner of the unit tests: notes for run-summary.ts what each file costs and leaves behind.
 * Loading of modules is not counted: files of a worker share it, and the first would pay for all.
 */
export default class UnitRunner extends TestRunner {
  #before = process.cpuUsage()
  #slowness = 1
  #unwatch = () => undefined as unknown

  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    if ('filepath' in suite) {
      this.#slowness = measureSlowness()
      this.#before = process.cpuUsage()
      this.#unwatch = watchTimers()
    }
    await super.onBeforeRunSuite(suite)
  }

  override async onAfterRunSuite(suite: RunnerTestSuite): Promise<void> {
    await super.onAfterRunSuite(suite)
    if (!('filepath' in suite)) return
    const { user, system } = process.cpuUsage(this.#before)
    const slowness = Math.max(this.#slowness, measureSlowness())
    suite.meta.cpuSeconds = (user + system) / 1_000_000 / slowness
    this.#unwatch()
    suite.meta.leftTimers = takeLeftTimers()
  }
}

const BYTES = new Uint8Array(2 ** 22)
const VALUES = Array.from({ length: 3_000 }, (_, at) => ({ at, text: `value ${at}`, of: [at] }))

/** CPU of each work, in microseconds, on the machine whose times CONTRIBUTING.md has. */
const WORKS: readonly (readonly [quiet: number, work: () => unknown])[] = [
  [2_700, () => hash('sha256', BYTES, 'hex')],
  [1_000, () => JSON.parse(JSON.stringify(VALUES))],
]

/**
 * How much longer fixed work takes than on a quiet machine, at least 1: of arithmetic, or of objects
 * and memory, whichever is more. Another machine is slower at one of them, and work beside the tests
 * takes caches and half of a core with two threads away.
 */
function measureSlowness(): number {
  const ratios = WORKS.map(([quiet, work]) => {
    const rounds = Array.from({ length: 3 }, () => {
      const before = process.cpuUsage()
      work()
      const { user, system } = process.cpuUsage(before)
      return user + system
    })
    return Math.min(...rounds) / quiet
  })
  return Math.max(1, ...ratios)
}
