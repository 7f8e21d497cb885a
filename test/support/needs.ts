import { existsSync, globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** What some tests need and a machine may lack, as a skipped test names it. */
export type Need = {
  /** As it stands in the title of a skipped test: `nats-server`, `../shared`, `root`. */
  readonly name: string
  readonly isMet: boolean
  /** The title with what is missing; unchanged where nothing is. */
  title(text: string): string
}

/** A program of `.ci/programs`; another one is a TypeError. */
export function needProgram(program: string): Need {
  if (!packageOf.has(program)) throw new TypeError(`expected ${program} to be in .ci/programs`)
  return need(program, hasProgram(program))
}

/** Files of `../shared`, which are not part of this repository. */
export function needShared(isThere: boolean): Need {
  return need('../shared', isThere)
}

/** To be root: for what mounts, changes its user or its root. */
export function needRoot(): Need {
  return need('root', process.getuid?.() === 0)
}

/** What else may keep a test from running here: `hindrance` says why; null when nothing does. */
export function needNo(hindrance: string | null): Need {
  return need(hindrance ?? '', hindrance === null)
}

function need(name: string, isMet: boolean): Need {
  return { name, isMet, title: (text) => (isMet ? text : `${text} [needs ${name}]`) }
}

/** What the title of a skipped test says that it needs; null when it says nothing. */
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
