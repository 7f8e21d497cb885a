import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** Maximum size of all waiting lines, bytes. Further lines are dropped. */
const WAITING_BYTES_MAX = 1024 * 1024

/** Pause before a retry on a full pipe. A pipe holds 64 KiB, so 3 MB/s are possible. */
const FULL_PIPE_PAUSE_MS = 20
/** Pause after any other failure, for example a full disk or a reader that has ended. */
const FAILURE_PAUSE_MS = 500

/** Longest wait for the reader of the last lines when the process exits. */
const EXIT_FLUSH_MS = 500

/** Writes lines in their order, and never waits for their reader. */
type LineWriter = {
  /** Writes the line at once if possible. Otherwise the line waits or is dropped. */
  write(line: string): void
  /** Writes the waiting lines, for at most `timeoutMs`. It blocks the process. */
  flush(timeoutMs: number): void
  status(): LineWriterStatus
}

export type LineWriterStatus = {
  /** Number of lines dropped since the start. */
  readonly dropped: number
  readonly waitingBytes: number
}

type LineWriterOptions = {
  /** Returns a line with the number of dropped lines. The line is written when there is room. */
  readonly describeDropped: (lines: number) => string
  /**
   * Writes bytes, and returns how many were written. Throws with the system's error code: EAGAIN if
   * the write would have to wait.
   */
  readonly writeSome: (bytes: Uint8Array) => number
  readonly bytesMax?: number
}

/**
 * Creates a writer with a queue of `bytesMax`. If no line waits, a new line is written at once, so
 * that a crash loses no lines. A file system that does not answer blocks the process, as with any
 * write.
 */
export function createLineWriter({
  describeDropped,
  writeSome,
  bytesMax = WAITING_BYTES_MAX,
}: LineWriterOptions): LineWriter {
  /** The first element can be the rest of a line. */
  let waiting: Uint8Array[] = []
  let waitingBytes = 0
  let dropped = 0
  let untold = 0
  let timer: NodeJS.Timeout | null = null

  /** Returns the code of the error that stopped the writing, or null if all lines are written. */
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
      // `line.length` is a lower bound for the line's bytes, and needs no encoding.
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
 * Opens a new descriptor for the same file. Writes to this descriptor do not wait for readers.
 * Pipes and terminals are opened again, without effect on other processes with this standard error.
 * Sockets cannot be opened again, but Node makes them non-blocking. Writes to files never wait for
 * a reader.
 */
function openNonBlocking(fd: 2): number {
  const file = fstatSync(fd)
  if (file.isFIFO() || file.isCharacterDevice()) {
    try {
      const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY
      return openSync(`/proc/self/fd/${fd}`, flags)
    } catch {
      // /proc is missing, or the pipe belongs to another user.
    }
  }
  if (file.isFIFO() || file.isSocket()) process.stderr.on('error', () => undefined)
  return fd
}

function codeOf(error: unknown): string {
  const { code } = error as { readonly code?: unknown }
  return typeof code === 'string' ? code : 'unknown'
}

/** Blocks the whole process for some milliseconds. */
function sleep(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
}
