import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { delimiter } from 'node:path'
import type { CliRun } from './run-cli.ts'

/** The Node.js that is installed on this machine, outside this checkout's packages. */
export type MachineNode = {
  /** `20.20.2`. */
  readonly version: string
  /** A PATH with it and its npm. */
  readonly path: string
}

/** Finds it; null when no Node.js with npm is installed. */
export function findMachineNode(): MachineNode | null {
  const folders = (process.env.PATH ?? '').split(delimiter)
  const path = folders
    .filter((folder) => !/(^|\/)node_modules\//.test(`${folder}/`))
    .join(delimiter)
  const ask = (program: string) =>
    execFileSync(program, ['--version'], { env: { PATH: path }, encoding: 'utf8' }).trim()
  try {
    ask('npm')
    return { version: ask('node').replace(/^v/, ''), path }
  } catch {
    return null
  }
}

/** Where and how a program runs. */
export type Place = {
  readonly folder: string
  readonly path: string
  readonly variables?: Readonly<Record<string, string>>
}

/** Runs a program to its end, in an environment of only PATH, HOME and these variables. */
export async function runIn(
  { folder, path, variables }: Place,
  program: string,
  ...words: readonly string[]
): Promise<CliRun> {
  const { HOME = '' } = process.env
  const child = spawn(program, words, {
    cwd: folder,
    env: { PATH: path, HOME, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const written = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      written[name] += text
    })
  const [code] = await once(child, 'close')
  return { code: code as number | null, ...written }
}
