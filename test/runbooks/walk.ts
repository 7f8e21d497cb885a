import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { childEnvironment } from '../support/child-environment.ts'
import { isExpected, readSteps, type Step } from './page.ts'

/** What a command of the walk says, and how it ends; by default nothing, and well. */
export type CommandResult = { readonly output?: string; readonly code?: number } | undefined

export type WalkOptions = {
  /** Beside PATH, HOME and LC_ALL, nothing else is in the page's environment. */
  readonly variables?: Readonly<Record<string, string>>
  /**
   * Commands that the test serves, such as `systemctl`: each gets its arguments, and may return the
   * promise of a result. They go before those of the machine; `affidavit` is there without.
   */
  readonly commands?: Readonly<
    Record<string, (words: readonly string[]) => Promise<CommandResult> | CommandResult>
  >
  /** Folders that come first in PATH, as of one Postgres version. */
  readonly programs?: readonly string[]
  /**
   * Absolute paths and addresses of the page, and what they are in this walk: replaced in the
   * steps, and back in what they print. Default: /etc/affidavit, /var/lib/affidavit,
   * /var/backups/affidavit are folders of the walk's own; /opt/affidavit is this checkout.
   */
  readonly places?: Readonly<Record<string, string>>
}

/** What a step printed, standard error included. */
export type Walked = Step & { readonly output: string }

/** A page on the way: one bash with `set -euo pipefail`, in a fresh folder. */
export type Walk = {
  /** The fresh folder, in which the page's bash begins. */
  readonly folder: string
  /** Where an absolute path of the page is in this walk. */
  place(path: string): string
  /**
   * Walks on to the end of this section. Rejects when steps of other sections would come before it,
   * when a step fails, and when it prints something else than the page says.
   */
  section(title: string): Promise<readonly Walked[]>
  /** What the steps printed until now, that of the step that runs included. */
  printed(): string
  /** Walks all that is left. */
  rest(): Promise<readonly Walked[]>
  /** Ends the walk: the sections that follow are for what did not happen. */
  leave(): void
}

const ROOT = join(import.meta.dirname, '../..')
const STEP_TIMEOUT_MS = 90_000

/**
 * Walks a page of deploy/runbooks, named without `.md`: `follow` says how far, and does between the
 * sections what is not on the page. Rejects with what `follow` rejects with, and when it leaves
 * steps that were not walked.
 */
export async function walkPage(
  page: string,
  options: WalkOptions,
  follow: (walk: Walk) => Promise<void>,
): Promise<void> {
  const file = join(ROOT, 'deploy/runbooks', `${page}.md`)
  await walkText(await readFile(file, 'utf8'), options, follow)
}

/** The text of one section of a page, for `walkText`. */
export async function readSection(page: string, title: string): Promise<string> {
  const text = await readFile(join(ROOT, 'deploy/runbooks', `${page}.md`), 'utf8')
  const [, section] = text.split(`\n## ${title}\n`)
  if (section === undefined) throw new Error(`expected a section ${title} in ${page}`)
  return `## ${title}\n${section.split('\n## ')[0]}`
}

/** The same for a page whose text is given. */
export async function walkText(
  markdown: string,
  options: WalkOptions,
  follow: (walk: Walk) => Promise<void>,
): Promise<void> {
  const left = [...readSteps(markdown)]
  const count = left.length
  if (count === 0) throw new Error('expected a page with steps (```sh blocks)')
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-walk-'))
  started.defer(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }))
  const own = {
    '/etc/affidavit': join(folder, 'etc'),
    '/var/lib/affidavit': join(folder, 'data'),
    '/var/backups/affidavit': join(folder, 'backups'),
  }
  for (const place of Object.values(own)) await mkdir(place)
  const places = { ...own, '/opt/affidavit': ROOT, ...options.places }
  const server = await serveCommands(folder, places['/opt/affidavit'], options.commands ?? {})
  started.defer(() => void server.close())
  const bash = startBash(folder, options)
  started.defer(bash.end)
  const place = (path: string) => toWalk(path, places)

  const walkNext = async (): Promise<Walked> => {
    const [step] = left
    if (step === undefined) throw new Error('expected another step of the page')
    const { code, output } = await bash.run(place(step.command))
    const where = `line ${step.line} (${step.section}):\n${step.command}\n`
    if (code !== 0) throw new Error(`a step failed with ${code}: ${where}it printed:\n${output}`)
    const said = toPage(output, places)
    if (step.expected !== null && !isExpected(said, step.expected))
      throw new Error(`expected ${where}to print\n${step.expected}\ngot\n${said}`)
    left.shift()
    return { ...step, output: said }
  }
  const walkWhile = async (isOn: () => boolean) => {
    const walked: Walked[] = []
    while (isOn()) walked.push(await walkNext())
    return walked
  }
  await follow({
    folder,
    place,
    async section(title) {
      const found = left[0]?.section
      if (found !== title)
        throw new Error(`expected the next step to be of ${JSON.stringify(title)}, got ${found}`)
      return walkWhile(() => left[0]?.section === title)
    },
    printed: bash.printed,
    rest: () => walkWhile(() => left.length > 0),
    leave: () => void left.splice(0),
  })
  const [forgotten] = left
  if (forgotten !== undefined)
    throw new Error(`${left.length} of ${count} steps not walked, from line ${forgotten.line}`)
}

type Places = Readonly<Record<string, string>>

function toWalk(text: string, places: Places): string {
  return Object.entries(places).reduce((done, [from, to]) => done.replaceAll(from, to), text)
}

/** The checkout may be a part of any path, so it is not shown as its place. */
function toPage(text: string, places: Places): string {
  return Object.entries(places)
    .filter(([from]) => from !== '/opt/affidavit')
    .reduce((done, [to, from]) => done.replaceAll(from, to), text)
}

/** One bash, whose steps see the variables of those before. */
function startBash(folder: string, { variables = {}, programs = [] }: WalkOptions) {
  const path = [join(folder, '.commands'), ...programs, dirname(process.execPath)]
  const bash = spawn('bash', ['--noprofile', '--norc', '-s'], {
    cwd: folder,
    detached: true,
    env: {
      ...childEnvironment(),
      HOME: folder,
      LC_ALL: 'C.UTF-8',
      ...variables,
      PATH: [...path, childEnvironment().PATH].join(':'),
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  let written = ''
  bash.stdout.setEncoding('utf8').on('data', (text: string) => {
    written += text
  })
  const closed = once(bash, 'close')
  bash.stdin.on('error', () => undefined)
  bash.stdin.write('exec 2>&1; set -euo pipefail\n')
  let number = 0
  return {
    printed: () => written,
    async run(command: string): Promise<{ readonly code: number; readonly output: string }> {
      const file = join(folder, '.steps', `${number++}.sh`)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, `${command}\n`)
      const mark = `<end of step ${randomUUID()}>`
      const from = written.length
      bash.stdin.write(`. '${file}' < /dev/null\nprintf '%s' '${mark}'\n`)
      const end = () => written.indexOf(mark, from)
      const timer = setTimeout(() => killGroup(bash), STEP_TIMEOUT_MS)
      const ended = await Promise.race([
        waitForText(bash, () => end() !== -1).then(() => true),
        closed.then(() => false),
      ])
      clearTimeout(timer)
      if (ended) return { code: 0, output: written.slice(from, end()) }
      const [code] = await closed
      return { code: code ?? -1, output: written.slice(from) }
    },
    end: async () => {
      bash.stdin.end()
      killGroup(bash)
      await closed
    },
  }
}

async function waitForText(bash: ChildProcess, isThere: () => boolean): Promise<void> {
  while (!isThere()) if (bash.stdout !== null) await once(bash.stdout, 'data')
}

/** The group is bash's own: what a step left running ends with it. */
function killGroup(bash: ChildProcess): void {
  try {
    if (bash.pid !== undefined) process.kill(-bash.pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}

/**
 * Puts a program for each command into the folder `.commands`. It hands its arguments over a socket
 * to this process.
 */
async function serveCommands(
  folder: string,
  checkout: string,
  commands: NonNullable<WalkOptions['commands']>,
): Promise<Server> {
  const bin = join(folder, '.commands')
  await mkdir(bin)
  const socketPath = join(folder, '.commands.sock')
  const write = (name: string, words: readonly string[]) =>
    writeFile(join(bin, name), `#!/bin/sh\nexec ${words.map(quote).join(' ')} "$@"\n`, {
      mode: 0o755,
    })
  await write('affidavit', [process.execPath, join(checkout, 'src/cli/main.ts')])
  for (const name of Object.keys(commands))
    await write(name, [
      process.execPath,
      join(import.meta.dirname, 'call-command.ts'),
      socketPath,
      name,
    ])
  const serve = async (socket: Socket) => {
    const [line] = (await once(socket.setEncoding('utf8'), 'data')) as readonly string[]
    const [name = '', ...words] = JSON.parse(line ?? '[]') as readonly string[]
    const result = await Promise.resolve(commands[name]?.(words)).catch((error: unknown) => ({
      output: `${name}: ${String(error)}\n`,
      code: 1,
    }))
    socket.end(JSON.stringify({ output: '', code: 0, ...result }))
  }
  const server = createServer({ allowHalfOpen: true }, (socket) => void serve(socket))
  server.listen(socketPath)
  await once(server, 'listening')
  return server
}

function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`
}
