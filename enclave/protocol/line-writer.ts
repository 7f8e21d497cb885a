import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** Lines that wait for a reader, bytes; what comes beyond that is dropped. */
export const WAITING_BYTES_MAX = 1024 * 1024

/** Pause before a full pipe is tried again: 64 KiB fit into one, so that 3 MB/s pass. */
const FULL_PIPE_PAUSE_MS = 20
/** Pause after any other failure: a full disk, a reader that is gone. */
const FAILURE_PAUSE_MS = 500

/** What an exit waits for a reader of the last lines. */
const EXIT_FLUSH_MS = 500

/** Writes lines, in their order, and never waits for who reads them. */
export type LineWriter = {
  /** Writes the line at once where that is possible; else it waits, or is dropped. */
  write(line: string): void
  /** Writes what waits, for at most so many milliseconds; the process does nothing else then. */
  flush(timeoutMs: number): void
  status(): LineWriterStatus
}

export type LineWriterStatus = {
  /** Lines dropped since the start. */
  readonly dropped: number
  /** Bytes of the lines that wait. */
  readonly waitingBytes: number
}

export type LineWriterOptions = {
  /** Gives the line that says how many were dropped, when there is room for it. */
  readonly describeDropped: (lines: number) => string
  /**
   * Writes bytes, and gives how many it took. Throws with the system's code, EAGAIN when it would
   * have to wait.
   */
  readonly writeSome: (bytes: Uint8Array) => number
  readonly bytesMax?: number
}

/**
 * A writer with a queue of `bytesMax`. A line is written in the caller's turn, as long as none
 * waits: then what was logged before a crash is out. A file system that does not answer at all
 * stops the process, as any write to it would.
 */
export function createLineWriter({
  describeDropped,
  writeSome,
  bytesMax = WAITING_BYTES_MAX,
}: LineWriterOptions): LineWriter {
  /** The first may be the rest of a line. */
  let waiting: Uint8Array[] = []
  let waitingBytes = 0
  let dropped = 0
  let untold = 0
  let timer: NodeJS.Timeout | null = null

  /** Gives the code of the error that stopped it; null when no line waits. */
  function writeWaiting(): string | null {
    let written = 0
    try {
      for (;;) {
        if (written === waiting.length) {
          if (untold === 0) return null
          enqueue(describeDropped(untold))
          untold = 0
        }
        const bytes = waiting[written] as Uint8Array
        const taken = writeSome(bytes)
        waitingBytes -= taken
        if (taken === bytes.length) written += 1
        else waiting[written] = bytes.subarray(taken)
      }
    } catch (error) {
      return codeOf(error)
    } finally {
      waiting = waiting.slice(written)
    }
  }

  function enqueue(line: string): void {
    const bytes = Buffer.from(line)
    waiting.push(bytes)
    waitingBytes += bytes.length
  }

  function goOn(): void {
    timer = null
    const code = writeWaiting()
    if (code === null) return
    timer = setTimeout(goOn, code === 'EAGAIN' ? FULL_PIPE_PAUSE_MS : FAILURE_PAUSE_MS)
    timer.unref()
  }

  return {
    write(line) {
      // Its length in characters is known without encoding it, and is never above that in bytes.
      if (waitingBytes + line.length > bytesMax) {
        dropped += 1
        untold += 1
        return
      }
      enqueue(line)
      if (timer === null) goOn()
    },
    flush(timeoutMs) {
      const deadline = performance.now() + timeoutMs
      while (writeWaiting() === 'EAGAIN' && performance.now() < deadline) sleep()
    },
    status: () => ({ dropped, waitingBytes }),
  }
}

/**
 * A writer to standard error that writes the waiting lines when the process exits. A pipe, a socket
 * or a terminal without a reader does not block the process.
 */
export function openStandardError(options: Pick<LineWriterOptions, 'describeDropped'>): LineWriter {
  const fd = openNonBlocking(2)
  const writer = createLineWriter({ ...options, writeSome: (bytes) => writeSync(fd, bytes) })
  process.on('exit', () => writer.flush(EXIT_FLUSH_MS))
  return writer
}

/**
 * A descriptor for the same file that does not wait for readers. Pipes and terminals are opened
 * again, so that other processes with the same standard error keep theirs as it is. A socket cannot
 * be; Node makes it non-blocking itself when it opens its stream. Files never wait for a reader.
 */
function openNonBlocking(fd: 2): number {
  const file = fstatSync(fd)
  if (file.isFIFO() || file.isCharacterDevice()) {
    try {
      const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY
      return openSync(`/proc/self/fd/${fd}`, flags)
    } catch {
      // No /proc, or a pipe that belongs to another user.
    }
  }
  if (file.isFIFO() || file.isSocket()) process.stderr.on('error', () => undefined)
  return fd
}

function codeOf(error: unknown): string {
  const { code } = error as { readonly code?: unknown }
  return typeof code === 'string' ? code : 'unknown'
}

/** The whole process sleeps for some milliseconds. */
function sleep(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
}
