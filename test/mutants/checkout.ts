import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import type { Mutant } from './operators.ts'
import type { Answer, Failure } from './run-tests.ts'

const RUN_TESTS = path.join(import.meta.dirname, 'run-tests.ts')

/** A copy of the project in which faults are seeded one after another. */
export class Checkout {
  readonly #root: string
  #runner: ChildProcess | null = null

  /** Copies the files that git knows or would add. Packages and ../shared are linked. */
  constructor(project: string, folder: string) {
    this.#root = path.join(folder, 'project')
    const files = execFileSync(
      'git',
      ['ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate'],
      { cwd: project, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
    )
    for (const file of files.split('\n')) {
      if (file === '' || !existsSync(path.join(project, file))) continue
      const target = path.join(this.#root, file)
      mkdirSync(path.dirname(target), { recursive: true })
      cpSync(path.join(project, file), target)
    }
    for (const [name, from] of [
      ['project/node_modules', path.join(project, 'node_modules')],
      ['shared', path.join(project, '../shared')],
    ] as const)
      symlinkSync(from, path.join(folder, name))
    const git = (...words: string[]) => execFileSync('git', words, { cwd: this.#root })
    git('init', '--quiet')
    git('add', '--all')
    git('-c', 'user.name=mutants', '-c', 'user.email=mutants@localhost', 'commit', '-qm', 'base')
  }

  /**
   * Seeds the fault, runs the tests in the given order, and takes the fault away. Gives the first
   * failure, or null. A run of over `limitMs` counts as one.
   */
  async try(mutant: Mutant, tests: readonly string[], limitMs: number): Promise<Failure | null> {
    const file = path.join(this.#root, mutant.file)
    const source = readFileSync(file, 'utf8')
    const changed = source.slice(0, mutant.start) + mutant.replacement + source.slice(mutant.end)
    writeFileSync(file, changed)
    try {
      return await this.#run(file, tests, limitMs)
    } finally {
      writeFileSync(file, source)
    }
  }

  /** Whether a test file passes when this file, from which a fault was taken away, is read again. */
  async passes(test: string, mutant: Mutant, limitMs: number): Promise<boolean> {
    return (await this.#run(path.join(this.#root, mutant.file), [test], limitMs)) === null
  }

  async #run(changed: string, tests: readonly string[], limitMs: number): Promise<Failure | null> {
    this.#runner ??= await startRunner(this.#root)
    const runner = this.#runner
    const limit = new AbortController()
    const timer = setTimeout(() => limit.abort(), limitMs)
    const { signal } = limit
    try {
      const ended = once(runner, 'exit', { signal }).then(() => [
        { failed: { file: '', title: 'the run died' } },
      ])
      const answered = once(runner, 'message', { signal })
      runner.send({ changed, tests: tests.map((test) => path.join(this.#root, test)) })
      const [{ failed }] = (await Promise.race([answered, ended])) as [Answer]
      if (runner.exitCode !== null) this.#runner = null
      return failed && { ...failed, file: failed.file && path.relative(this.#root, failed.file) }
    } catch (error) {
      if (!signal.aborted) throw error
      this.stop()
      return { file: '', title: 'the limit of time' }
    } finally {
      clearTimeout(timer)
      limit.abort()
    }
  }

  /** Ends the runner and all that it started. */
  stop(): void {
    const { pid } = this.#runner ?? {}
    this.#runner = null
    if (pid === undefined) return
    try {
      process.kill(-pid, 'SIGKILL')
    } catch {
      // It ended by itself.
    }
  }
}

async function startRunner(root: string): Promise<ChildProcess> {
  rmSync(path.join(root, 'node_modules/.vite'), { recursive: true, force: true })
  const runner = fork(RUN_TESTS, [`--root=${root}`], { detached: true, stdio: 'ignore' })
  const [first] = await Promise.race([once(runner, 'message'), once(runner, 'exit')])
  if (first !== 'ready') throw new Error('the tests cannot be started')
  return runner
}
