import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { until } from './until.ts'
import type { SharedAffidavit } from './use-affidavit.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')
const START_MS = 30_000
const BASE_URL = /Checked answers at (\S+),/

/** The program `affidavit proxy` on a free port. */
export type ProxyProgram = {
  /** With `/v1` at its end. */
  readonly baseURL: string
  /** Returns what the program has printed so far. */
  output(): string
  signal(signal: NodeJS.Signals): void
  /** Resolves with all that it printed when the program has ended. */
  stop(signal?: NodeJS.Signals): Promise<{ readonly code: number | null; readonly output: string }>
}

/** Starts the program before a service, with more words, and waits until it serves. */
export async function startProxyProgram(
  { url, policyFile }: Pick<SharedAffidavit, 'url' | 'policyFile'>,
  more: readonly string[] = [],
): Promise<ProxyProgram> {
  const words = ['proxy', '--url', url, '--policy', policyFile, '--port', '0', ...more]
  const child = spawn(process.execPath, [MAIN, ...words])
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  await until('it serves', () => BASE_URL.test(output), START_MS)
  return {
    baseURL: BASE_URL.exec(output)?.[1] ?? '',
    output: () => output,
    signal: (signal) => void child.kill(signal),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      return { code: await exited, output }
    },
  }
}
