import { writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Reporter, TestCase, TestModule, Vitest } from 'vitest/node'
import { findPackageOf, needOf } from './needs.ts'

/**
 * Names the file to which a run writes its failed files (FailedFile[], JSON). Unset: it writes no
 * file.
 */
export const FAILED_FILES_VARIABLE = 'TEST_FAILED_FILES'

/** A unit file whose tests take more is reported as a failure. */
const UNIT_CPU_SECONDS_MAX = 3
/** The same for a file of test/house, which reads the whole repository. */
const HOUSE_CPU_SECONDS_MAX = 6

/** A test file that failed. */
export type FailedFile = {
  /** From the folder of the repository. */
  readonly file: string
  /** A line for each failed test: its title, and the first line of its error. */
  readonly failures: readonly string[]
}

/**
 * Reporter that ends a run with what was skipped, and what to install for it. A title names its
 * need (`needProgram`); tests that `-t` left out are not counted.
 */
export default class RunSummary implements Reporter {
  #vitest: Vitest | null = null

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    const vitest = this.#vitest
    if (vitest === null) return
    if (vitest.config.testNamePattern === undefined)
      for (const line of describeSkipped(listSkipped(modules))) vitest.logger.log(line)
    const faults = [...describeDear(modules), ...describeLeft(modules)]
    for (const line of faults) vitest.logger.log(line)
    if (faults.length > 0) process.exitCode = 1
    const file = process.env[FAILED_FILES_VARIABLE]
    // An error outside all tests belongs to no file: to run files again cannot make that run pass.
    if (file !== undefined && unhandled.length === 0)
      writeFileSync(file, JSON.stringify(listFailed(modules, vitest.config.root)))
  }
}

/** A line for each unit file over its CPU time (unit-runner.ts), the dearest first. */
function describeDear(modules: readonly TestModule[]): readonly string[] {
  return modules
    .map((module) => ({ file: module.relativeModuleId, seconds: module.meta().cpuSeconds ?? 0 }))
    .map(({ file, seconds }) => ({
      file,
      seconds,
      max: file.startsWith('test/house/') ? HOUSE_CPU_SECONDS_MAX : UNIT_CPU_SECONDS_MAX,
    }))
    .filter(({ seconds, max }) => seconds > max)
    .toSorted((one, other) => other.seconds - one.seconds)
    .map(
      ({ file, seconds, max }) =>
        `too dear: ${file} took ${seconds.toFixed(1)} s of CPU, ${max} are allowed`,
    )
}

/** A line for each timer of the product that outlived the tests of a unit file. */
function describeLeft(modules: readonly TestModule[]): readonly string[] {
  return modules.flatMap((module) =>
    (module.meta().leftTimers ?? []).map(
      (place) => `left behind: ${module.relativeModuleId} ended while a timer of ${place} ran`,
    ),
  )
}

/** The full titles of skipped tests, each with the note of its skip. */
function listSkipped(modules: readonly TestModule[]): readonly string[] {
  return modules.flatMap((module) =>
    [...module.children.allTests('skipped')].map(
      (test) => `${test.fullName} ${reasonOfSkip(test)}`,
    ),
  )
}

function reasonOfSkip(test: TestCase): string {
  const result = test.result()
  return result.state === 'skipped' ? (result.note ?? '') : ''
}

/** A line for each missing thing, with the command that installs it, if there is one. */
export function describeSkipped(titles: readonly string[]): readonly string[] {
  const counts = new Map<string, number>()
  for (const title of titles) {
    const need = needOf(title) ?? `nothing that its title names: ${title.trim()}`
    counts.set(need, (counts.get(need) ?? 0) + 1)
  }
  return [...counts]
    .toSorted(([one], [other]) => one.localeCompare(other, 'en'))
    .map(([need, count]) => {
      const name = findPackageOf(need)
      const words = `skipped: ${count} ${count === 1 ? 'test needs' : 'tests need'} ${need}`
      return name === null ? words : `${words} (apt-get install ${name})`
    })
}

function listFailed(modules: readonly TestModule[], root: string): readonly FailedFile[] {
  return modules
    .filter((module) => module.state() === 'failed')
    .map((module) => ({
      file: path.relative(root, module.moduleId),
      failures: [
        ...[...module.children.allTests('failed')].map(
          (test) => `${test.fullName}: ${firstLine(test.result().errors?.[0]?.message)}`,
        ),
        ...module.errors().map(({ message }) => firstLine(message)),
        ...[...module.children.allSuites()].flatMap((suite) =>
          suite.errors().map(({ message }) => `${suite.fullName}: ${firstLine(message)}`),
        ),
      ],
    }))
}

function firstLine(message = 'no message'): string {
  return message.split('\n', 1)[0] ?? ''
}
