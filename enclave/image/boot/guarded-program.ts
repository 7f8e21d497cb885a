import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { PROJECT_ROOT } from '../build-image.ts'
import { BootError } from './boot-error.ts'

/** A program that ends when this process does, however that ends. */
export type GuardedProgram = {
  /** Of the program itself. */
  readonly pid: number
  /** Resolves when it is gone and all that it wrote was read. Never rejects. */
  readonly exited: Promise<void>
  /** Kills it, and resolves when it is gone. */
  stop(): Promise<void>
}

/**
 * Starts a program of the operating system under src/local/guard.ts, run by its path as everything of src/ is here. What it
 * writes to either stream goes to `onOutput`. Rejects with BootError `missing_tool` when there is no such program.
 */
export async function startGuarded(
  command: readonly [file: string, ...words: string[]],
  onOutput: (bytes: Uint8Array) => void,
): Promise<GuardedProgram> {
  const guard = spawn(process.execPath, [GUARD, GRACE_MS, ...command], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // The guard's own Node.js needs nothing; qemu and what it starts must not see this process's secrets.
    env: { NODE_NO_WARNINGS: '1', PATH: SYSTEM_PATH },
    detached: true,
  })
  for (const stream of [guard.stdout, guard.stderr]) stream?.on('data', onOutput)
  const exited = new Promise<void>((resolve) => {
    guard.once('close', () => resolve())
    guard.once('error', () => resolve())
  })
  const pid = await Promise.race([readStartedPid(guard), exited.then(() => null)])
  if (pid === null) throw new BootError('missing_tool', `${command[0]} cannot be started; is it installed?`)
  return {
    pid,
    exited,
    stop: async () => {
      guard.kill('SIGTERM')
      await exited
    },
  }
}

const GUARD = join(PROJECT_ROOT, 'src/local/guard.ts')
/** There is nothing in a machine that is worth waiting for. */
const GRACE_MS = '0'
const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The guard's report (src/local/guard.ts); null when it could not start the program. */
function readStartedPid(guard: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => {
    guard.once('message', (report) => {
      const isStarted = typeof report === 'object' && 'pid' in report && typeof report.pid === 'number'
      resolve(isStarted ? Number(report.pid) : null)
    })
  })
}
