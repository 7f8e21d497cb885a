import { chmodSync, lstatSync, unlinkSync } from 'node:fs'
import type { Server } from 'node:http'
import { connect } from 'node:net'

/** The enclave cannot listen on the socket. The operator must correct this. */
export class SocketError extends Error {
  override readonly name = 'SocketError'
  readonly code: 'in_use' | 'not_a_socket' | 'unusable'

  constructor(code: 'in_use' | 'not_a_socket' | 'unusable', message: string) {
    super(message)
    this.code = code
  }
}

/** Who may open the socket: only this user, or also the group of the socket's file. */
export type SocketMode = 0o600 | 0o660

/**
 * Makes `server` listen on a Unix socket that only this user, or its group, may open. It replaces
 * the socket of a killed enclave, but never a socket that still answers, or a file of another kind.
 * Throws SocketError.
 */
export async function listenOnSocket(
  server: Server,
  path: string,
  mode: SocketMode = 0o600,
): Promise<void> {
  await removeStaleSocket(path)
  // The umask sets the mode at creation. With a later chmod, others could connect before it.
  const umask = process.umask(0o777 & ~mode)
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) =>
        reject(new SocketError('unusable', `${path}: ${codeOf(error)}`)),
      )
      server.listen(path, resolve)
    })
  } finally {
    process.umask(umask)
  }
  chmodSync(path, mode)
}

async function removeStaleSocket(path: string): Promise<void> {
  const stat = lstatSync(path, { throwIfNoEntry: false })
  if (stat === undefined) return
  if (!stat.isSocket()) throw new SocketError('not_a_socket', `${path}: exists, and is no socket`)
  if (await isAnswered(path))
    throw new SocketError('in_use', `${path}: another process listens on it`)
  unlinkSync(path)
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path)
    const finish = (answered: boolean) => {
      socket.destroy()
      resolve(answered)
    }
    socket.once('connect', () => finish(true))
    // Only ECONNREFUSED shows that no process listens. A full queue causes another error.
    socket.once('error', (error) => finish(codeOf(error) !== 'ECONNREFUSED'))
  })
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}
