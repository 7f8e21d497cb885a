import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { createProgram } from '#src/cli/program.ts'

const root = join(import.meta.dirname, '../..')
const read = (page: string) => readFileSync(join(root, page), 'utf8')

const OPERATING = readdirSync(join(root, 'docs/operating')).map((name) => `docs/operating/${name}`)
const OTHERS = ['deploy/README.md', 'contracts/README.md']

/** Where a command of the program stands in a page. */
const COMMANDS = [
  // In a line that runs it from a checkout.
  /(?:npm run -s affidavit --|src\/cli\/main\.ts) ([a-z].*)$/gm,
  // In a block: alone, after another command, after variables.
  /^ {3,}(?:.*[|;(] )?(?:[A-Z_]+=\S+ )*affidavit ([a-z].*)$/gm,
  // In a sentence.
  /`affidavit ([a-z][^`]*)`/g,
]

/** The words after the program in every command; a backslash goes on in the next line. */
function listCalls(text: string): readonly (readonly string[])[] {
  const joined = text.replace(/\\\n\s*/g, '')
  return COMMANDS.flatMap((pattern) => [...joined.matchAll(pattern)]).map(([, call = '']) =>
    call.replace(/\s+[#|>].*$/, '').split(/\s+/),
  )
}

/** What of a call the program does not know: the command, or options. */
function listUnknown(words: readonly string[]): readonly string[] {
  let command: Command = createProgram()
  const rest = words.filter((word) => word !== '…')
  for (;;) {
    const next = command.commands.find((child) => child.name() === rest[0])
    if (next === undefined) break
    command = next
    rest.shift()
  }
  const [word] = rest
  if (command.commands.length > 0 && word !== undefined && !word.startsWith('--'))
    return [`${command.name()} ${word}`]
  return rest.filter(
    (word) => word.startsWith('--') && command.options.every((option) => option.long !== word),
  )
}

describe('the guides for operators', () => {
  it.each([...OPERATING, ...OTHERS])(
    'a guide for operators calls only commands and options that exist: %s',
    (page) => {
      expect(listCalls(read(page)).flatMap(listUnknown)).toEqual([])
    },
  )

  it.each(OPERATING)(
    'a guide that reads DATABASE_URL from gateway.env also has the line for a secret in a file: %s',
    (page) => {
      const text = read(page)
      if (text.includes('export DATABASE_URL="$(sed'))
        expect(text).toContain('export DATABASE_URL_FILE=/etc/affidavit/secrets/database-url')
    },
  )

  it('a guide gives the content key to every command that compares keys', () => {
    const calls = OPERATING.flatMap(
      (page) => read(page).match(/^.*affidavit content keys$/gm) ?? [],
    )
    expect(calls.length).toBeGreaterThan(0)
    for (const call of calls) expect(call).toMatch(/CONTENT_KEY_FILE=\S+ affidavit content keys/)
  })

  it('every page of docs/operating is in its table of contents', () => {
    const contents = read('docs/operating/README.md')
    const pages = OPERATING.map((page) => basename(page)).filter((name) => name !== 'README.md')
    expect(pages.length).toBeGreaterThan(20)
    expect(pages.filter((name) => !contents.includes(`](${name})`))).toEqual([])
  })

  it('the check of guides finds an unknown option and an unknown command', () => {
    expect(listUnknown(['contract', 'deploy', '--url', 'x'])).toEqual(['--url'])
    expect(listUnknown(['keys', 'make'])).toEqual(['keys make'])
    expect(listUnknown(['relayer', 'show'])).toEqual(['relayer show'])
    expect(listUnknown(['tell', '…'])).toEqual(['affidavit tell'])
  })
})
