import { type RunnerTestSuite, TestRunner } from 'vitest'
import { takeLeftTimers, watchTimers } from './leftovers.ts'

declare module 'vitest' {
  interface TaskMeta {
    /** CPU that the file's tests took in their own process, user and system. */
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
  #unwatch = () => undefined as unknown

  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    if ('filepath' in suite) {
      this.#before = process.cpuUsage()
      this.#unwatch = watchTimers()
    }
    await super.onBeforeRunSuite(suite)
  }

  override async onAfterRunSuite(suite: RunnerTestSuite): Promise<void> {
    await super.onAfterRunSuite(suite)
    if (!('filepath' in suite)) return
    const { user, system } = process.cpuUsage(this.#before)
    suite.meta.cpuSeconds = (user + system) / 1_000_000
    this.#unwatch()
    suite.meta.leftTimers = takeLeftTimers()
  }
}
