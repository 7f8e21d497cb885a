import { execFileSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type CliRun, type RunOptions, runProcess } from '../run-cli.ts'
import { succeeds } from '../succeeds.ts'
import { passOn } from './pass-on.ts'

const PORT = 8080
/** Where programs in a namespace reach the service. */
export const LOOPBACK_ORIGIN = `http://127.0.0.1:${PORT}`

/** Longest time of a program. A program that takes longer is ended. */
const PROGRAM_MS = 120_000

/** Runs programs without a network: each namespace has loopback alone, and on it one service. */
export type Loopback = {
  /** Runs a program with only these environment variables. */
  run(words: readonly string[], options: RunOptions): Promise<CliRun>
  close(): Promise<void>
}

/** A new user is root in a new network, and starts its only device. */
const NAMESPACE = ['-rn', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']

/** Null if network namespaces can be made here, otherwise what is missing. */
export function findLoopbackHindrance(): string | null {
  const isMade = succeeds(() =>
    execFileSync('unshare', [...NAMESPACE, 'true'], { stdio: 'ignore' }),
  )
  return isMade ? null : 'network namespaces'
}

/**
 * Opens the way from namespaces to the service at `url`: a socket in the file system, which all
 * namespaces have in common.
 */
export async function openLoopback(url: string): Promise<Loopback> {
  const { hostname, port } = new URL(url)
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-loopback-'))
  const path = join(folder, 'service')
  const server = await passOn({ path }, { host: hostname, port: Number(port) })
  const within = [process.execPath, join(import.meta.dirname, 'run-within.ts'), path, String(PORT)]
  return {
    run: (words, options) =>
      runProcess('unshare', [...NAMESPACE, ...within, ...words], {
        timeoutMs: PROGRAM_MS,
        ...options,
      }),
    async close() {
      server.close()
      await rm(folder, { recursive: true })
    },
  }
}
