import { once } from 'node:events'
import { Duplex } from 'node:stream'
import { Worker } from 'node:worker_threads'
import { DatabaseAwayError } from './errors.ts'

/** An embedded database that runs in its own thread. */
export type EmbeddedThread = {
  /**
   * Returns a connection for `pg`. The previous connection must have ended, because there is only
   * one session.
   */
  connect(): Duplex
  /** Resolves when the thread has ended. */
  close(): Promise<void>
}

/** Throws PGlite's error. */
export async function startEmbeddedThread(folder: string): Promise<EmbeddedThread> {
  const worker = new Worker(new URL('./embedded-worker.ts', import.meta.url), {
    workerData: { folder },
  })
  let connection: Connection | null = null
  let ended: Error | null = null
  const exited = new Promise<void>((resolve) => {
    worker.on('exit', () => resolve())
  })
  await opened(worker)
  worker.on('message', (bytes: Uint8Array) => connection?.push(bytes))
  worker.on('error', (error) => end(error))
  worker.on('exit', () => end(new Error('the thread of the embedded database has ended')))

  function end(cause: Error): void {
    ended ??= new DatabaseAwayError(cause.message, { cause })
    connection?.destroy(ended)
  }

  return {
    connect() {
      const made = new Connection((bytes) => {
        if (ended !== null) throw ended
        worker.postMessage(bytes)
      })
      connection = made
      return made
    },
    async close() {
      if (ended === null) worker.postMessage(null)
      await exited
    },
  }
}

/** Resolves at the thread's first message. Rejects if the thread ends before that message. */
async function opened(worker: Worker): Promise<void> {
  const ended = new AbortController()
  const exit = once(worker, 'exit', { signal: ended.signal }).then(([code]) => {
    throw new Error(`the thread of the embedded database ended with ${code}`)
  })
  try {
    await Promise.race([once(worker, 'message', { signal: ended.signal }), exit])
  } finally {
    ended.abort()
    exit.catch(() => {})
  }
}

/** First byte of the message with which a client ends its session. */
const TERMINATE = 'X'.charCodeAt(0)

/** The client's side of a connection. Data that is written together is sent as one message. */
class Connection extends Duplex {
  readonly #send: (bytes: Uint8Array) => void

  constructor(send: (bytes: Uint8Array) => void) {
    super()
    this.#send = send
  }

  /** `pg` calls these methods on a socket. */
  connect(): this {
    process.nextTick(() => this.emit('connect'))
    return this
  }

  setNoDelay(): this {
    return this
  }

  setKeepAlive(): this {
    return this
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }

  override _read(): void {}

  override _write(chunk: Buffer, _: BufferEncoding, done: (error?: Error) => void): void {
    this.#pass([chunk], done)
  }

  override _writev(
    chunks: readonly { readonly chunk: Buffer }[],
    done: (error?: Error) => void,
  ): void {
    this.#pass(
      chunks.map(({ chunk }) => chunk),
      done,
    )
  }

  override _final(done: () => void): void {
    this.push(null)
    done()
  }

  #pass(chunks: readonly Buffer[], done: (error?: Error) => void): void {
    const kept = chunks.filter(([first]) => first !== TERMINATE)
    try {
      // Small buffers share one memory block, which would be sent as a whole without this copy.
      if (kept.length > 0) this.#send(new Uint8Array(Buffer.concat(kept)))
      done()
    } catch (error) {
      done(error instanceof Error ? error : new Error(String(error)))
    }
  }
}
