import { type RunnerTestSuite, TestRunner } from 'vitest'

declare module 'vitest' {
  interface TaskMeta {
    /** CPU that the file's tests took in their own process, user and system. */
    cpuSeconds?: number
  }
}

/**
 * Runner of the unit tests: notes the CPU time of each file for run-summary.ts. Loading of modules
 * is not counted: files of a worker share it, and the first would pay for all.
 */
export default class CpuTimeRunner extends TestRunner {
  #before = process.cpuUsage()

  override async onBeforeRunSuite(suite: RunnerTestSuite): Promise<void> {
    if ('filepath' in suite) this.#before = process.cpuUsage()
    await super.onBeforeRunSuite(suite)
  }

  override async onAfterRunSuite(suite: RunnerTestSuite): Promise<void> {
    await super.onAfterRunSuite(suite)
    if (!('filepath' in suite)) return
    const { user, system } = process.cpuUsage(this.#before)
    suite.meta.cpuSeconds = (user + system) / 1_000_000
  }
}
