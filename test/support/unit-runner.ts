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

const WORK = new Uint8Array(2 ** 22)
/** CPU of a hash of that work on the machine whose times CONTRIBUTING.md has. */
const QUIET_MICROSECONDS = 2_700

/**
 * How much longer fixed work takes than on a quiet machine, at least 1. Work beside the tests takes
 * caches and half of a core with two threads away, and each second of CPU then does less.
 */
function measureSlowness(): number {
  const rounds = Array.from({ length: 4 }, () => {
    const before = process.cpuUsage()
    hash('sha256', WORK, 'hex')
    const { user, system } = process.cpuUsage(before)
    return user + system
  })
  return Math.max(1, Math.min(...rounds) / QUIET_MICROSECONDS)
}
