import { type Command, CommanderError } from 'commander'
import { vi } from 'vitest'
import { CliError, EXIT_CODES } from '#src/cli/faults.ts'
import { createProgram } from '#src/cli/program.ts'
import { ConfigurationError } from '#src/runtime/read-settings.ts'
import type { CliRun } from './run-cli.ts'

/**
 * Runs `affidavit` with these words in this process, with the exit code that main would give. One
 * at a time.
 */
export async function runCommand(...words: readonly string[]): Promise<CliRun> {
  return run(words)
}

/** Like `runCommand`, with only these environment variables. */
export async function runCommandWith(
  variables: Readonly<Record<string, string>>,
  ...words: readonly string[]
): Promise<CliRun> {
  const environment = process.env
  process.env = { ...variables }
  try {
    return await run(words)
  } finally {
    process.env = environment
  }
}

async function run(words: readonly string[]): Promise<CliRun> {
  const written = { stdout: '', stderr: '' }
  const spies = (['stdout', 'stderr'] as const).map((name) =>
    vi.spyOn(process[name], 'write').mockImplementation((text) => {
      written[name] += String(text)
      return true
    }),
  )
  const program = createProgram()
  throwAtExit(program)
  process.exitCode = undefined
  try {
    await program.parseAsync(words, { from: 'user' })
    return { code: Number(process.exitCode ?? 0), ...written }
  } catch (fault) {
    if (fault instanceof CommanderError)
      return { code: fault.exitCode === 0 ? EXIT_CODES.done : EXIT_CODES.usage, ...written }
    if (fault instanceof ConfigurationError)
      return {
        code: EXIT_CODES.usage,
        stdout: written.stdout,
        stderr: `${written.stderr}${fault.message}`,
      }
    if (!(fault instanceof CliError)) throw fault
    return {
      code: fault.exitCode,
      stdout: written.stdout,
      stderr: `${written.stderr}${fault.message}`,
    }
  } finally {
    for (const spy of spies) spy.mockRestore()
    process.exitCode = undefined
  }
}

function throwAtExit(command: Command): void {
  command.exitOverride()
  for (const child of command.commands) throwAtExit(child)
}
