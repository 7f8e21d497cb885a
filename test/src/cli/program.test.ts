import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { EXAMPLES } from '../../../src/cli/examples.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { runCommand } from '../../support/run-command.ts'

const README = join(import.meta.dirname, '../../../src/cli/README.md')

/** `verify`, `keys create`, `keys list`, …, each once. */
function namesBelow(command: Command): readonly string[] {
  return command.commands.flatMap((child) =>
    child.commands.length === 0
      ? [child.name()]
      : child.commands.map((one) => `${child.name()} ${one.name()}`),
  )
}

/** The same, of the README's table: `verify SOURCE`, `keys create\|list\|revoke`. */
function namesOf(readme: string): readonly string[] {
  return [...readme.matchAll(/^\| `([^`]+)`/gm)].flatMap(([, cell = '']) => {
    const [name = '', rest = ''] = cell.split(' ')
    return /^[a-z]/.test(rest) ? rest.split('\\|').map((word) => `${name} ${word}`) : [name]
  })
}

/** Every command that has no commands below it, by its words. */
function leavesBelow(
  command: Command,
  words: readonly string[] = [],
): readonly (readonly [string, Command])[] {
  if (command.commands.length === 0) return [[words.join(' '), command]]
  return command.commands.flatMap((child) => leavesBelow(child, [...words, child.name()]))
}

describe('the commands', () => {
  it('every command has examples, of options that it has, and no example is of another', () => {
    const leaves = new Map(leavesBelow(createProgram()))
    expect(Object.keys(EXAMPLES).toSorted()).toEqual([...leaves.keys()].toSorted())
    for (const [words, command] of leaves) {
      const known = command.options.map(({ long }) => long)
      for (const example of Object.keys(EXAMPLES[words] ?? {}))
        for (const option of example.match(/(?<=^| )--[a-z-]+/g) ?? [])
          expect([words, known]).toEqual([words, expect.arrayContaining([option])])
    }
  })

  it('help of a command is asked for in either order, and has the examples last', async () => {
    const [one, other] = [await runCommand('help', 'verify'), await runCommand('verify', '--help')]
    expect(one).toEqual(other)
    expect(one.code).toBe(0)
    expect((await runCommand('help', 'keys', 'create')).stdout).toContain('affidavit keys create')
    const unknown = await runCommand('help', 'keys', 'make')
    expect([unknown.code, unknown.stderr]).toEqual([
      2,
      expect.stringContaining('there is no command keys make'),
    ])
    expect(one.stdout).toMatch(/\nExamples:\n( {2}affidavit verify .*\n)+$/)
  })

  it('the commands are those of the README, each with a line that tells what it does', async () => {
    const program = createProgram()
    expect([...namesBelow(program)].sort()).toEqual(
      [...namesOf(await readFile(README, 'utf8'))].sort(),
    )
    const reported = program.commands.flatMap((one) => [one, ...one.commands])
    for (const command of reported)
      expect([command.name(), command.description()]).toEqual([
        command.name(),
        expect.stringMatching(/\w/),
      ])
  })
})
