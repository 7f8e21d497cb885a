import { existsSync, globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** Something that some tests need and a machine may lack; a skipped test names it. */
export type Need = {
  /** Its name in the title of a skipped test: `nats-server`, `../shared`, `root`. */
  readonly name: string
  readonly isMet: boolean
  /** The title with what is missing; unchanged when nothing is missing. */
  title(text: string): string
}

/** A program of `.ci/programs`; throws TypeError for any other. */
export function needProgram(program: string): Need {
  if (!packageOf.has(program)) throw new TypeError(`expected ${program} to be in .ci/programs`)
  return need(program, hasProgram(program))
}

/** Files in `../shared`, which are not part of this repository. */
export function needShared(isThere: boolean): Need {
  return need('../shared', isThere)
}

/** Root rights: for tests that mount, or change their user or their root. */
export function needRoot(): Need {
  return need('root', process.getuid?.() === 0)
}

/** Another reason why a test cannot run here: `hindrance` gives it; null: the test can run. */
export function needNo(hindrance: string | null): Need {
  return need(hindrance ?? '', hindrance === null)
}

function need(name: string, isMet: boolean): Need {
  return { name, isMet, title: (text) => (isMet ? text : `${text} [needs ${name}]`) }
}

/** What a skipped test needs, read from its title; null when the title names no need. */
export function needOf(title: string): string | null {
  return /\[needs (.+?)\]/.exec(title)?.[1] ?? null
}

/** The Debian package that has a program, by `.ci/programs`; null when it is not listed. */
export function findPackageOf(program: string): string | null {
  return packageOf.get(program) ?? null
}

const LIST = fileURLToPath(new URL('../../.ci/programs', import.meta.url))

/** By program: the Debian package that has it. */
const packageOf: ReadonlyMap<string, string> = new Map(
  readFileSync(LIST, 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [program = '', name = ''] = line.split(/ +/)
      return [program, name] as const
    }),
)

function hasProgram(program: string): boolean {
  if (program === 'chromium' && existsSync(process.env.CHROME_PATH ?? '')) return true
  if (program.startsWith('/')) return globSync(program).length > 0
  return (process.env.PATH ?? '')
    .split(path.delimiter)
    .some((folder) => existsSync(path.join(folder, program)))
}
