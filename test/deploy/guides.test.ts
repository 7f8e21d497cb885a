import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'

const GUIDES = [
  'enclave/OPERATING.md',
  'deploy/README.md',
  'deploy/kubernetes/README.md',
  'src/chain/contract/README.md',
]

/**
 * The words after the program in every command line of a guide; a backslash goes on in the next
 * line.
 */
function listCalls(guide: string): readonly (readonly string[])[] {
  const text = readFileSync(join(import.meta.dirname, '../..', guide), 'utf8').replace(
    /\\\n\s*/g,
    '',
  )
  const lines = text.matchAll(/(?:npm run -s affidavit --|src\/cli\/main\.ts) ([a-z].*)$/gm)
  return [...lines].map(([, call = '']) => call.replace(/\s+#.*$/, '').split(/\s+/))
}

/** What of a call the program does not know: the command, or options. */
function listUnknown(words: readonly string[]): readonly string[] {
  let command: Command = createProgram()
  const rest = [...words]
  for (;;) {
    const next = command.commands.find((child) => child.name() === rest[0])
    if (next === undefined) break
    command = next
    rest.shift()
  }
  if (command.commands.length > 0) return [`${command.name()} ${rest[0]}`]
  return rest.filter(
    (word) => word.startsWith('--') && command.options.every((option) => option.long !== word),
  )
}

describe('the guides for operators', () => {
  it.each(GUIDES)(
    'a guide for operators calls only commands and options that exist: %s',
    (guide) => {
      const calls = listCalls(guide)
      expect(calls).not.toEqual([])
      expect(calls.flatMap(listUnknown)).toEqual([])
    },
  )

  it('the check of guides finds an unknown option and an unknown command', () => {
    expect(listUnknown(['contract', 'deploy', '--url', 'x'])).toEqual(['--url'])
    expect(listUnknown(['keys', 'make'])).toEqual(['keys make'])
  })
})
