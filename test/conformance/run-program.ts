import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Run } from './judge.ts'

/** Longest output that is read, bytes of each stream. */
const OUTPUT_BYTES_MAX = 4 * 1024 * 1024

/**
 * Runs a program once, without a shell and without input, in a new process group. When it takes
 * longer than `timeoutMs` or prints more than OUTPUT_BYTES_MAX, the whole group is ended.
 */
export async function runProgram(
  program: readonly string[],
  words: readonly string[],
  { timeoutMs }: { readonly timeoutMs: number },
): Promise<Run> {
  const [file = '', ...first] = program
  const child = spawn(file, [...first, ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  let endedFor: string | null = null
  const end = (reason: string) => {
    endedFor ??= reason
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
    } catch {
      // It ended by itself meanwhile.
    }
  }
  const timer = setTimeout(() => end(`no end within ${timeoutMs} ms`), timeoutMs)
  const read = (stream: NodeJS.ReadableStream) => {
    const parts: Buffer[] = []
    let bytes = 0
    stream.on('data', (part: Buffer) => {
      bytes += part.length
      if (bytes > OUTPUT_BYTES_MAX) end(`more than ${OUTPUT_BYTES_MAX} bytes of output`)
      else parts.push(part)
    })
    return () => Buffer.concat(parts).toString('utf8')
  }
  const [stdout, stderr] = [read(child.stdout), read(child.stderr)]
  try {
    const [code] = await once(child, 'close')
    return { code: code as number | null, stdout: stdout(), stderr: stderr(), endedFor }
  } catch (fault) {
    const reason = `cannot be started: ${fault instanceof Error ? fault.message : 'unknown fault'}`
    return { code: null, stdout: '', stderr: '', endedFor: reason }
  } finally {
    clearTimeout(timer)
  }
}
