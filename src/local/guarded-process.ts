import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import type { GuardReport } from './guard.ts'

/** Bytes of a captured process's output that are kept for error messages: its last ones. */
const OUTPUT_TAIL_BYTES = 4096

/** How a process ended: an exit code, or the signal that ended it. */
type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null }

/** A child process that cannot outlive this one. */
export type GuardedProcess = {
  /** The child's own pid (not the guard's). */
  readonly pid: number
  /** Resolves when the child is gone. Never rejects. */
  readonly exited: Promise<Exit>
  /** The last output of a process with output `capture`; empty for `inherit`. */
  outputTail(): string
  /** Ends the child (SIGTERM, after the grace SIGKILL) and resolves when it is gone. */
  stop(): Promise<void>
}

/**
 * Starts `command` under guard.ts, so that it ends when this process does, even by kill -9.
 * Resolves when it runs; rejects when it cannot be started. The pair runs in a process group of its
 * own: Ctrl-C reaches only the parent, which stops its children in the order it wants.
 *
 * What it does not cover: a kill -9 of the guard and of this process at the same moment leaves the
 * child behind.
 */
export async function spawnGuarded(spec: {
  readonly command: string
  readonly arguments: readonly string[]
  /** All variables that it gets. */
  readonly environment: Readonly<Record<string, string>>
  readonly output: 'inherit' | 'capture'
  /** Milliseconds between SIGTERM and SIGKILL; 0 kills at once. */
  readonly graceMs: number
}): Promise<GuardedProcess> {
  const stream = spec.output === 'capture' ? 'pipe' : 'inherit'
  const guard = spawn(
    process.execPath,
    [join(import.meta.dirname, 'guard.ts'), String(spec.graceMs), spec.command, ...spec.arguments],
    { stdio: ['ignore', stream, stream, 'ipc'], env: spec.environment, detached: true },
  )
  const exited = new Promise<Exit>((resolve) => {
    guard.once('exit', (code, signal) => resolve({ code, signal }))
    guard.once('error', () => resolve({ code: 1, signal: null }))
  })
  const tail = keepTail(guard)
  const pid = await startedPid(guard, exited)
  const gone = exited.then((exit) => {
    // A guard that was killed could not end its child.
    if (exit.signal !== null) killQuietly(pid)
    return exit
  })
  return {
    pid,
    exited: gone,
    outputTail: tail,
    stop: async () => {
      guard.kill('SIGTERM')
      await gone
    },
  }
}

function startedPid(guard: ChildProcess, exited: Promise<Exit>): Promise<number> {
  return new Promise((resolve, reject) => {
    guard.once('message', (report: GuardReport) => {
      if (report.kind === 'started') resolve(report.pid)
      else reject(new Error(report.message))
    })
    guard.once('error', reject)
    exited.then(({ code, signal }) =>
      reject(new Error(`the guard ended before its child ran (code ${code}, signal ${signal})`)),
    )
  })
}

function keepTail(guard: ChildProcess): () => string {
  let tail = Buffer.alloc(0)
  for (const stream of [guard.stdout, guard.stderr]) {
    stream?.on('data', (bytes: Buffer) => {
      tail = Buffer.concat([tail, bytes]).subarray(-OUTPUT_TAIL_BYTES)
    })
  }
  return () => tail.toString('utf8').trim()
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // Gone already.
  }
}
