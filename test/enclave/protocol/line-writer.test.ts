import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { createLineWriter, type LineWriterStatus } from '#enclave/protocol/line-writer.ts'
import { childEnvironment } from '../../support/child-environment.ts'

/** A file that takes so many bytes, then fails with `code`. */
function fileOf(room: number) {
  const file = { text: '', room, code: 'EAGAIN' }
  const writeSome = (bytes: Uint8Array) => {
    if (file.room === 0) throw Object.assign(new Error('full'), { code: file.code })
    const taken = bytes.subarray(0, file.room)
    file.text += Buffer.from(taken).toString()
    file.room -= taken.length
    return taken.length
  }
  return { file, writeSome }
}

const describeDropped = (lines: number) => `(${lines} dropped)\n`

afterEach(() => vi.useRealTimers())

describe('createLineWriter', () => {
  it.each(['EAGAIN', 'ENOSPC', 'EPIPE'])(
    'the line writer goes on where %s stopped it, with no line cut',
    (code) => {
      vi.useFakeTimers()
      const { file, writeSome } = fileOf(4)
      file.code = code
      const writer = createLineWriter({ describeDropped, writeSome })
      writer.write('one\n')
      writer.write('two\n')
      file.room = 2
      vi.advanceTimersByTime(1_000)
      expect(file.text).toBe('one\ntw')
      file.room = 100
      writer.write('three\n')
      vi.advanceTimersByTime(1_000)
      expect(file.text).toBe('one\ntwo\nthree\n')
      expect(writer.status()).toEqual({ dropped: 0, waitingBytes: 0 })
    },
  )

  it('the line writer drops lines that its queue has no room for, and says how many when it can write', () => {
    vi.useFakeTimers()
    const { file, writeSome } = fileOf(0)
    const writer = createLineWriter({ describeDropped, writeSome, bytesMax: 10 })
    for (const line of ['one\n', 'two\n', 'three\n', 'four\n']) writer.write(line)
    expect(writer.status()).toEqual({ dropped: 2, waitingBytes: 8 })
    file.room = 100
    vi.advanceTimersByTime(1_000)
    writer.write('five\n')
    expect(file.text).toBe('one\ntwo\n(2 dropped)\nfive\n')
    expect(writer.status()).toEqual({ dropped: 2, waitingBytes: 0 })
  })
})

describe('a process that logs to', () => {
  const processes: ChildProcess[] = []
  afterEach(() => {
    for (const child of processes.splice(0)) child.kill('SIGKILL')
  })
  const start = (stderr: 'pipe' | number, count: number) => {
    const program = join(import.meta.dirname, '../../support/log-process.ts')
    const child = spawn(process.execPath, [program, String(count)], {
      stdio: ['ignore', 'ignore', stderr, 'ipc'],
      env: childEnvironment(),
    })
    processes.push(child)
    return { child, said: once(child, 'message').then(([said]) => said as Said) }
  }
  type Said = LineWriterStatus & { readonly tookMs: number }

  it('a process whose log is not read goes on, drops lines, and says so when there is a reader', async () => {
    // Node opens a socket for 'pipe', which is not read before it flows.
    const { child, said } = start('pipe', 3_000)
    const { dropped } = await said
    expect(dropped).toBeGreaterThan(1_000)
    const { stderr } = child
    const lines: { line?: number; lines?: number; msg: string }[] = []
    let text = ''
    stderr?.on('data', (bytes) => {
      text += bytes
      const parts = text.split('\n')
      text = parts.pop() ?? ''
      lines.push(...parts.map((part) => JSON.parse(part)))
    })
    await vi.waitUntil(() => lines.at(-1)?.msg === 'log lines dropped', { timeout: 30_000 })
    expect(lines.map(({ line }) => line).slice(0, -1)).toEqual(
      Array.from({ length: 3_000 - dropped }, (_, at) => at + 1),
    )
    expect(lines.at(-1)?.lines).toBe(dropped)
    child.send('exit')
    expect(await once(child, 'close')).toEqual([3, null])
    expect(lines.slice(-2).map(({ msg }) => msg)).toEqual(['last but one', 'last'])
  })
})
