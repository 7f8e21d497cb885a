#!/usr/bin/env node
import { createCommandLine, runCommandLine } from '../../src/cli/command-line.ts'
import { CHECKER_COMMANDS } from '../../src/cli/commands/checker.ts'
import { registerCompletions } from '../../src/cli/commands/completions.ts'

// The program of the package `affidavit`: the checkout's without what only an operator needs.
await runCommandLine(
  createCommandLine({
    name: 'affidavit',
    description: 'Check signed evidence of completions.',
    commands: { ...CHECKER_COMMANDS, 'This program:': [registerCompletions] },
  }),
)
