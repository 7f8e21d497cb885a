import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from 'vitest'
import { until } from './until.ts'

/** A fenced block of a Markdown page. `info`: the text after its language. */
export type Block = {
  readonly line: number
  readonly language: string
  readonly info: string
  readonly text: string
}

/** One command of a block, and the lines that the page prints below it. */
type Step = { readonly command: string; readonly printed: readonly string[] }

/** The fenced blocks of a page, in their order. */
export function listBlocks(page: string): readonly Block[] {
  const blocks = page.matchAll(/^```(\w*) *(.*)\n([\s\S]*?)^```$/gm)
  return [...blocks].map(({ index, 1: language = '', 2: info = '', 3: text = '' }) => ({
    line: page.slice(0, index).split('\n').length,
    language,
    info,
    text,
  }))
}

/** The commands of a `console` block: `$ ` begins one, a backslash at its end continues it. */
export function listSteps(text: string): readonly Step[] {
  const joined = text.replace(/ *\\\n */g, ' ')
  return joined
    .split(/^\$ /m)
    .slice(1)
    .map((part) => {
      const [command = '', ...printed] = part.trimEnd().split('\n')
      return { command, printed }
    })
}

/**
 * Whether `output` is what a page prints, line by line: `…` matches any text within a line, and a
 * line of `…` alone matches any number of lines. A page that prints no lines accepts any output.
 */
export function isPrinted(output: string, printed: readonly string[]): boolean {
  if (printed.length === 0) return true
  const lines = printed.map((line) =>
    line === '…' ? '(?:.*\\n)*?' : `${line.split('…').map(escapeText).join('.*')} *\\n`,
  )
  return new RegExp(`^${lines.join('')}$`).test(`${output.trimEnd()}\n`)
}

function escapeText(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}

/** A reader at a terminal, who follows the pages. */
export type Reader = {
  /**
   * Follows a block. The commands of a `console` block run in one shell; each must succeed and
   * print what the page prints. A `console terminal` block runs in a new terminal, and stays there.
   * A block whose first line is a comment with a file's name is saved. A block for some readers
   * only, such as `console pip`, is left out.
   */
  follow(block: Block): Promise<void>
  /** Runs one further command in the shell, for the test. */
  run(command: string): Promise<string>
  close(): Promise<void>
}

/** How long one command may take, milliseconds: npm installs hundreds of packages. */
const COMMAND_MS = 300_000

export function startReader(folder: string, environment: NodeJS.ProcessEnv): Reader {
  const shell = spawn('bash', ['--noprofile', '--norc'], { cwd: folder, env: environment })
  const terminals: ChildProcess[] = []
  let written = ''
  for (const stream of [shell.stdout, shell.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (written += text))
  let count = 0

  async function runIn(
    command: string,
  ): Promise<{ readonly output: string; readonly code: number }> {
    const mark = `--- command ${++count} ended with`
    written = ''
    shell.stdin.write(`{ ${command}\n} 2>&1 < /dev/null; printf '\\n%s %s\\n' '${mark}' "$?"\n`)
    const ended = new RegExp(`\\n${mark} (\\d+)\\n`)
    await until(command, () => ended.test(written), COMMAND_MS)
    const [, code] = ended.exec(written) ?? []
    return { output: written.slice(0, written.search(ended)), code: Number(code) }
  }

  async function stay({ command, printed }: Step): Promise<void> {
    const { output: place } = await runIn('pwd')
    const { output: variables } = await runIn('export -p')
    const child = spawn('bash', ['-c', `${variables}\ncd '${place.trim()}'; exec ${command}`], {
      env: environment,
      detached: true,
    })
    terminals.push(child)
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (output += text))
    await until(
      `${command} prints what the page prints`,
      () => isPrinted(output, printed) || child.exitCode !== null,
      60_000,
    ).catch(() => undefined)
    expect({ command, output }).toSatisfy(() => isPrinted(output, printed))
  }

  async function follow({ language, info, text }: Block): Promise<void> {
    const [, name] = /^(?:\/\/|#) (\S+\.\w+)\n/.exec(text) ?? []
    if (name !== undefined) {
      const { output: place } = await runIn('pwd')
      await writeFile(join(place.trim(), name), text)
      return
    }
    if (language !== 'console' || !['', 'terminal'].includes(info)) return
    for (const step of listSteps(text)) {
      if (info === 'terminal') await stay(step)
      else {
        const { output, code } = await runIn(step.command)
        expect({ ...step, output, code }).toSatisfy(
          () => code === 0 && isPrinted(output, step.printed),
        )
      }
    }
  }

  return {
    follow,
    run: async (command) => (await runIn(command)).output,
    async close() {
      for (const child of terminals) {
        if (child.exitCode !== null) continue
        const ended = once(child, 'exit')
        // npm passes the signal on to the program that it runs.
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGINT')
        await ended
      }
      shell.stdin.end()
      if (shell.exitCode === null) await once(shell, 'exit')
    },
  }
}
