#!/usr/bin/env node
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createCommandLine, runCommandLine } from '#src/cli/command-line.ts'
import { checkerCommands } from '#src/cli/commands/checker.ts'
import { registerCompletions } from '#src/cli/commands/completions.ts'

// The program of the package `affidavit`: the repository's program without the commands for
// operators.
await runCommandLine(
  createCommandLine({
    name: 'affidavit',
    description: 'Check signed evidence of completions.',
    commands: { ...checkerCommands(openVerifier), 'This program:': [registerCompletions] },
  }),
)

/** Returns the page in this package, with the version and the commit of its build. */
async function openVerifier() {
  const read = (name: string) => readFile(join(import.meta.dirname, '..', name), 'utf8')
  const { version, gitHead } = JSON.parse(await read('package.json'))
  return { verifier: await read('verify.html'), maker: { version, commit: gitHead ?? null } }
}
