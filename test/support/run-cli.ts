import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { childEnvironment } from './child-environment.ts'

/** How a run of a program ended. */
export type CliRun = {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')

type RunOptions = {
  readonly variables?: Readonly<Record<string, string>>
  readonly input?: string | Uint8Array
}

/** Runs `affidavit` with these words, with only these environment variables. */
export function runCli(words: readonly string[], options: RunOptions = {}): Promise<CliRun> {
  return runProgram(MAIN, words, options)
}

/** Runs a TypeScript file with these words, with only these environment variables. */
export async function runProgram(
  file: string,
  words: readonly string[],
  options: RunOptions = {},
): Promise<CliRun> {
  const child = spawn(process.execPath, [file, ...words], {
    env: { ...childEnvironment(), ...options.variables },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  const written = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    written.stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    written.stderr += text
  })
  // A command that does not read its input closes the pipe.
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.input ?? '')
  const [code] = await once(child, 'close')
  return { code: code as number | null, ...written }
}
