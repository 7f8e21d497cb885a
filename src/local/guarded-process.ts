import { join } from 'node:path'
import type { Logger } from '../observability/logger.ts'
import type { GuardReady } from './guard.ts'
import { type Life, readReady, startProcess } from './supervised-process.ts'

const GUARD = join(import.meta.dirname, 'guard.ts')
const START_TIMEOUT_MS = 60_000
const STOP_TIMEOUT_MS = 5_000

export type GuardedProcess = Life<GuardReady>

/**
 * Starts a program under guard.ts, without environment variables. The program also ends when a kill
 * -9 ends this process. It continues only if a kill -9 ends the guard and this process at the same
 * moment. Rejects with StartFailure.
 */
export async function spawnGuarded(
  name: string,
  command: readonly [file: string, ...words: string[]],
  log: Logger,
): Promise<GuardedProcess> {
  const plan = {
    name,
    file: GUARD,
    words: command,
    environmentOf: () => ({}),
    parseReady: readReady<GuardReady>,
    startTimeoutMs: START_TIMEOUT_MS,
    stopTimeoutMs: STOP_TIMEOUT_MS,
  }
  const life = await startProcess(plan, null, log)
  life.child.once('exit', (_, signal) => {
    // A killed guard cannot end its child. This process ends the child instead.
    if (signal !== null) killQuietly(life.ready.pid)
  })
  return life
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The child has ended already.
  }
}
