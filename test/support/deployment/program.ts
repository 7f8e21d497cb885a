import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { childEnvironment } from '../child-environment.ts'

/** How a program of this repository is run. */
export type ProgramPlan = {
  /** TypeScript file, from the repository's root, or of another checkout by its absolute path. */
  readonly file: string
  readonly variables: Readonly<Record<string, string>>
  /** Arguments for Node.js itself. */
  readonly nodeArguments?: readonly string[]
  /** Largest number of open file descriptors; default: the system's. */
  readonly descriptorsMax?: number
  /** Its standard error goes to this file, and is not kept in `output`. */
  readonly logFile?: string
}

const root = join(import.meta.dirname, '../../..')
/** Pause of a supervisor before it restarts a program that exited by itself. */
const RESTART_DELAY_MS = 300
const OUTPUT_LENGTH_MAX = 2 ** 20

/**
 * A program that can be killed, stopped in mid-work, and started again with the same or another
 * plan. A supervisor restarts it when it exits by itself. It ends with this process.
 */
export class Program {
  readonly #plan: ProgramPlan
  #launched: ProgramPlan
  #child: ChildProcess | null = null
  #isWanted = false
  #output = ''
  /** How often it exited by itself. */
  exits = 0

  constructor(plan: ProgramPlan) {
    this.#plan = plan
    this.#launched = plan
  }

  get isRunning(): boolean {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** Null while it does not run. */
  get pid(): number | null {
    return this.isRunning ? (this.#child?.pid ?? null) : null
  }

  /** The last of what it wrote to standard error. */
  get output(): string {
    return this.#output
  }

  /**
   * Starts it, with these changes to its plan until the next start; has no effect while it runs.
   */
  start(changes: Partial<ProgramPlan> = {}): void {
    if (this.isRunning) return
    this.#isWanted = true
    this.#launched = {
      ...this.#plan,
      ...changes,
      variables: { ...this.#plan.variables, ...changes.variables },
      nodeArguments: [...(this.#plan.nodeArguments ?? []), ...(changes.nodeArguments ?? [])],
    }
    this.#launch()
  }

  /** Ends it without a restart; resolves when it is gone. */
  async end(signal: NodeJS.Signals): Promise<void> {
    this.#isWanted = false
    const child = this.#child
    if (child === null || !this.isRunning) return
    const exited = once(child, 'exit')
    child.kill(signal)
    // A stopped process acts on no other signal but SIGKILL.
    child.kill('SIGCONT')
    await exited
  }

  /** SIGSTOP: it runs no longer, and its connections stay open. */
  pause(): void {
    this.#child?.kill('SIGSTOP')
  }

  /** SIGCONT, after `pause`. */
  resume(): void {
    this.#child?.kill('SIGCONT')
  }

  /** Whether its standard error is read. If not, the pipe fills up. */
  readOutput(isRead: boolean): void {
    if (isRead) this.#child?.stderr?.resume()
    else this.#child?.stderr?.pause()
  }

  #launch(): void {
    const { file, variables, nodeArguments = [], descriptorsMax, logFile } = this.#launched
    const words = [process.execPath, ...nodeArguments, resolve(root, file)]
    const [command = '', ...given] =
      descriptorsMax === undefined
        ? words
        : ['/bin/sh', '-c', `ulimit -n ${descriptorsMax}; exec "$@"`, 'sh', ...words]
    const log = logFile === undefined ? null : openSync(logFile, 'a')
    const child = spawn(command, given, {
      cwd: root,
      env: { ...childEnvironment(), ...variables },
      stdio: ['ignore', 'ignore', log ?? 'pipe', 'ipc'],
    })
    if (log !== null) closeSync(log)
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#output = (this.#output + text).slice(-OUTPUT_LENGTH_MAX)
    })
    child.once('exit', () => void this.#supervise(child))
    this.#child = child
  }

  async #supervise(child: ChildProcess): Promise<void> {
    if (!this.#isWanted || this.#child !== child) return
    this.exits += 1
    await sleep(RESTART_DELAY_MS)
    if (this.#isWanted && this.#child === child) this.#launch()
  }
}
