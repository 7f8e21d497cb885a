import { type Command, CommanderError } from 'commander'
import { CliError, EXIT_CODES } from '#src/cli/faults.ts'
import { createProgram } from '#src/cli/program.ts'
import { type ChainEndpoint, startChainEndpoint } from './chain-endpoint.ts'
import { wordsOf } from './command-line.ts'
import type { Run } from './judge.ts'
import { type ConformanceCase, VECTORS } from './manifest.ts'

/** Runs a case through our own command line, in this process; one at a time. */
export async function runCase(one: ConformanceCase): Promise<Run> {
  const { chain } = one.demands
  const endpoint: ChainEndpoint | null =
    chain === undefined ? null : await startChainEndpoint(chain)
  try {
    return await runWords(wordsOf(one, { folder: VECTORS, rpcUrl: endpoint?.url ?? null }))
  } finally {
    await endpoint?.close()
  }
}

async function runWords(words: readonly string[]): Promise<Run> {
  const stdout: string[] = []
  const before = { stdout: process.stdout.write, stderr: process.stderr.write }
  process.stdout.write = (text: string | Uint8Array) => {
    stdout.push(String(text))
    return true
  }
  process.stderr.write = () => true
  const give = (code: number, stderr = ''): Run => ({
    code,
    stdout: stdout.join(''),
    stderr,
    endedFor: null,
  })
  const program = createProgram()
  throwAtExit(program)
  process.exitCode = 0
  try {
    await program.parseAsync(words, { from: 'user' })
    return give(Number(process.exitCode))
  } catch (fault) {
    if (fault instanceof CliError) return give(fault.exitCode, fault.message)
    if (fault instanceof CommanderError) return give(EXIT_CODES.usage, fault.message)
    // A skipped check may leave a value undefined: the process would end with this error.
    return give(1, fault instanceof Error ? fault.message : 'unknown fault')
  } finally {
    process.stdout.write = before.stdout
    process.stderr.write = before.stderr
    process.exitCode = 0
  }
}

function throwAtExit(command: Command): void {
  command.exitOverride().configureOutput({ writeErr: () => undefined })
  for (const child of command.commands) throwAtExit(child)
}
