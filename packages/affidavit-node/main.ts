#!/usr/bin/env node
import { createCommandLine, runCommandLine } from '#src/cli/command-line.ts'
import { registerCompletions } from '#src/cli/commands/completions.ts'
import { registerNodeCommands } from '#src/cli/commands/node.ts'

// The program of the package `affidavit-node`: the repository's command `affidavit node`.
await runCommandLine(
  createCommandLine({
    name: 'affidavit-node',
    description: 'Contribute a machine: run a node agent, and look at what it does.',
    commands: { 'Commands:': [registerNodeCommands, registerCompletions] },
  }),
)
