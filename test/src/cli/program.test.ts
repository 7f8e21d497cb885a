import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { createProgram } from '../../../src/cli/program.ts'

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

describe('the commands', () => {
  it('the commands are those of the README, each with a line that tells what it does', async () => {
    const program = createProgram()
    expect([...namesBelow(program)].sort()).toEqual(
      [...namesOf(await readFile(README, 'utf8'))].sort(),
    )
    const told = program.commands.flatMap((one) => [one, ...one.commands])
    for (const command of told)
      expect([command.name(), command.description()]).toEqual([
        command.name(),
        expect.stringMatching(/\w/),
      ])
  })
})
