import { execFileSync, spawnSync } from 'node:child_process'
import { Argument, Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { writeCompletions } from '#src/cli/commands/completions.ts'
import { needProgram } from '../../../support/needs.ts'

const ZSH = needProgram('zsh')
const FISH = needProgram('fish')

const program = new Command('tool').description("it's a tool")
program.helpCommand(false)
const keys = program.command('keys').description('manage keys').helpCommand(false)
keys.command('create').description("make one: it's new").option('--name <text>', 'its name')
keys.command('revoke').description('end one').argument('<id>')
program.command('show').addArgument(new Argument('<what>').choices(['this', 'that']))

function complete(...words: string[]): readonly string[] {
  const script = [
    writeCompletions(program, 'bash'),
    `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')})`,
    `COMP_CWORD=${words.length - 1}`,
    '_tool',
    `printf '%s\\n' "\${COMPREPLY[@]}"`,
  ].join('\n')
  return execFileSync('bash', ['-c', script], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean)
    .toSorted()
}

describe('completions for bash', () => {
  it.each<[readonly string[], readonly string[]]>([
    [
      ['tool', ''],
      ['--help', 'keys', 'show'],
    ],
    [['tool', 'k'], ['keys']],
    [
      ['tool', 'keys', ''],
      ['--help', 'create', 'revoke'],
    ],
    [['tool', 'keys', 'create', '--n'], ['--name']],
    [
      ['tool', 'show', 't'],
      ['that', 'this'],
    ],
    [['tool', 'nothing', 'ke'], ['keys']],
  ])('completions for bash offer after %j the words %j', (words, offered) => {
    expect(complete(...words)).toEqual(offered)
  })
})

describe('completions for zsh and fish', () => {
  it.each(['zsh', 'fish'] as const)('completions for %s name every command and option', (shell) => {
    const script = writeCompletions(program, shell)
    for (const word of ['keys', 'create', 'revoke', 'show', 'this', 'that', 'name'])
      expect(script).toContain(word)
    expect(script).toContain("it'\\''s new")
  })

  it.runIf(ZSH.isMet)(ZSH.title('completions for zsh are read by zsh'), () => {
    expect(spawnSync('zsh', ['-n'], { input: writeCompletions(program, 'zsh') }).status).toBe(0)
  })

  it.runIf(FISH.isMet)(FISH.title('completions for fish complete in fish'), () => {
    const script = `${writeCompletions(program, 'fish')}\ncomplete -C 'tool keys '`
    const offered = execFileSync('fish', ['-c', script], { encoding: 'utf8' })
    expect(offered).toBe("create\tmake one: it's new\nrevoke\tend one\n")
  })
})
