import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Command, Option } from 'commander'
import { describe, expect, it } from 'vitest'
import { createCommandLine } from '#src/cli/command-line.ts'
import { checkerCommands } from '#src/cli/commands/checker.ts'
import { registerCompletions } from '#src/cli/commands/completions.ts'
import { EXAMPLES } from '#src/cli/examples.ts'
import { createProgram } from '#src/cli/program.ts'
import { listSettings } from '../../house/settings-page.ts'
import { runCommand } from '../../support/run-command.ts'

const ROOT = join(import.meta.dirname, '../../..')

/** The commands of the package `affidavit`. */
const CHECKER = {
  ...checkerCommands(() => Promise.reject(new Error('expected no page'))),
  'This program:': [registerCompletions],
}

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

/** What an example leaves to its reader, and a value of that form. */
const PLACEHOLDERS: Readonly<Record<string, string>> = {
  HASH: 'ab'.repeat(32),
  '0x…': `0x${'ab'.repeat(20)}`,
  URL: 'https://chain.example',
}

/** The words that a shell gives to the program. */
function wordsOf(example: string): readonly string[] {
  const [call = ''] = example.split(/ (?:<|>>) /)
  const words = call.match(/"[^"]*"|\S+/g) ?? []
  return words.map((word) => PLACEHOLDERS[word] ?? word.replaceAll('"', ''))
}

/** Parses the words as the command does, without its work. Returns commander's message, or null. */
function refusalOf(words: readonly string[], rest: readonly string[]): string | null {
  const program = createProgram()
  const leaf = words.reduce<Command>(
    (above, word) => above.commands.find((one) => one.name() === word) ?? above,
    program,
  )
  leaf.action(() => {})
  for (let one: Command | null = leaf; one !== null; one = one.parent)
    one.exitOverride().configureOutput({ writeErr: () => {} })
  try {
    program.parse([...words, ...rest], { from: 'user' })
    return null
  } catch (fault) {
    return String(fault)
  }
}

/** A default as the help shows it. Undefined without a default. */
function shownDefault({ defaultValue, defaultValueDescription }: Option): string | undefined {
  if (defaultValue === undefined || typeof defaultValue === 'string') return defaultValue
  return defaultValueDescription ?? JSON.stringify(defaultValue)
}

const EXAMPLE_LINES = Object.entries(EXAMPLES).flatMap(([words, examples]) =>
  Object.entries(examples).map(([rest, what]) => ({ words, rest, what })),
)

describe('the commands', () => {
  it.each(EXAMPLE_LINES)('the command accepts its example: $words $rest', ({ words, rest }) => {
    expect(refusalOf(words.split(' '), wordsOf(rest))).toBeNull()
  })

  it('an example gives a file only to an argument that is one', () => {
    const leaves = new Map(leavesBelow(createProgram()))
    for (const { words, rest } of EXAMPLE_LINES) {
      const operands = rest.replace(/ ?--.*$/, '').split(' ')
      const files = operands.flatMap((word, at) =>
        /\.(json|pem|eif|html|b64)$/.test(word) ? [at] : [],
      )
      const names = leaves.get(words)?.registeredArguments.map((one) => one.name()) ?? []
      for (const at of files)
        expect([words, ['file', 'list', 'image', 'source']]).toEqual([
          words,
          expect.arrayContaining([names[Math.min(at, names.length - 1)]]),
        ])
    }
  })

  it('the examples name only variables that a process reads, and the deployment its own key', () => {
    const known = ['src/config.ts', 'src/cli/config.ts', 'src/cli/operator/config.ts']
      .flatMap(listSettings)
      .flatMap(({ names }) => names)
    const named = EXAMPLE_LINES.flatMap(({ what }) => what.match(/[A-Z]+(?:_[A-Z]+)+/g) ?? [])
    expect(named).toContain('DEPLOYER_PRIVATE_KEY')
    expect(named).not.toContain('RELAYER_PRIVATE_KEY')
    expect(named.filter((name) => !known.includes(name))).toEqual([])
  })

  it('an option accepts the default that the help shows', () => {
    const shown = leavesBelow(createProgram()).flatMap(([, command]) =>
      command.options.flatMap((option) => {
        const text = shownDefault(option)
        return text === undefined || !option.parseArg ? [] : [{ option, text }]
      }),
    )
    expect(shown.length).toBeGreaterThan(0)
    for (const { option, text } of shown)
      expect([option.flags, option.parseArg?.(text, undefined)]).toEqual([
        option.flags,
        option.defaultValue,
      ])
  })

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

  it.each([
    ['src/cli', createProgram()],
    [
      'packages/affidavit',
      createCommandLine({ name: 'affidavit', description: '', commands: CHECKER }),
    ],
  ])('the commands of the README of %s are those of its program', async (room, program) => {
    const readme = await readFile(join(ROOT, room, 'README.md'), 'utf8')
    expect([...namesOf(readme)].sort()).toEqual([...namesBelow(program)].sort())
  })

  it('each command has a line that tells what it does', () => {
    const reported = createProgram().commands.flatMap((one) => [one, ...one.commands])
    for (const command of reported)
      expect([command.name(), command.description()]).toEqual([
        command.name(),
        expect.stringMatching(/\w/),
      ])
  })
})
