import { connect, type Socket } from 'node:net'

/** One connection over which a test writes and reads any bytes. */
export type RawConnection = {
  readonly socket: Socket
  write(text: string | Uint8Array): void
  /** Text received so far. */
  received(): string
  /** Resolves when the received text matches; rejects when the connection closes before that. */
  until(pattern: RegExp): Promise<string>
  /** Resolves with the whole received text once the other side has closed. */
  readonly closed: Promise<string>
}

/** Connects to a loopback port. */
export async function connectRaw(port: number): Promise<RawConnection> {
  const socket = connect({ port, host: '127.0.0.1' })
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  let text = ''
  const watchers = new Set<() => void>()
  socket.on('data', (part) => {
    text += part.toString('latin1')
    for (const watch of watchers) watch()
  })
  // A reset counts as an end like any other; tests check the text before it.
  socket.on('error', () => {})
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)))
  return {
    socket,
    write: (bytes) => void socket.write(bytes),
    received: () => text,
    closed,
    until: (pattern) =>
      new Promise((resolve, reject) => {
        const watch = () => {
          if (!pattern.test(text)) return
          watchers.delete(watch)
          resolve(text)
        }
        watchers.add(watch)
        void closed.then(() => reject(new Error(`closed before ${pattern}: ${text.slice(0, 500)}`)))
        watch()
      }),
  }
}
