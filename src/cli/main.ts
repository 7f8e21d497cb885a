#!/usr/bin/env node
import { type Command, CommanderError } from 'commander'
import { ConfigurationError } from '../runtime/read-settings.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import { createProgram } from './program.ts'

const program = createProgram()
throwAtExit(program)
try {
  await program.parseAsync()
} catch (fault) {
  process.exitCode = report(fault)
}

/**
 * Commander would end the process with its own exit codes, and cut off output that is still on its
 * way.
 */
function throwAtExit(command: Command): void {
  command.exitOverride()
  for (const child of command.commands) throwAtExit(child)
}

function report(fault: unknown): number {
  if (fault instanceof CommanderError)
    return fault.exitCode === 0 ? EXIT_CODES.done : EXIT_CODES.usage
  if (fault instanceof CliError) {
    console.error(`affidavit: ${fault.message}`)
    return fault.exitCode
  }
  if (fault instanceof ConfigurationError) {
    console.error(fault.message)
    return EXIT_CODES.usage
  }
  throw fault
}
