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

export type RunOptions = {
  readonly variables?: Readonly<Record<string, string>>
  readonly input?: string | Uint8Array
  /** The current folder of the program. */
  readonly folder?: string
  /** The program is ended after this time. Default: never. */
  readonly timeoutMs?: number
}

/** Runs `affidavit` with these words, with only these environment variables. */
export function runCli(words: readonly string[], options: RunOptions = {}): Promise<CliRun> {
  return runProgram(MAIN, words, options)
}

/** Runs a TypeScript file with these words, with only these environment variables. */
export function runProgram(
  file: string,
  words: readonly string[],
  options: RunOptions = {},
): Promise<CliRun> {
  return runProcess(process.execPath, [file, ...words], options)
}

/** Runs a command with these words, with only these environment variables. */
export async function runProcess(
  command: string,
  words: readonly string[],
  options: RunOptions = {},
): Promise<CliRun> {
  const child = spawn(command, words, {
    cwd: options.folder,
    env: { ...childEnvironment(), ...options.variables },
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: options.timeoutMs,
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
