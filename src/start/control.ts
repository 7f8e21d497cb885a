import { once } from 'node:events'
import { lstat, readFile, rm, writeFile } from 'node:fs/promises'
import type { Server } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { CONTROL_FILE, type ControlAddress } from '../api/control-operations.ts'
import { createControlServer, type ServedOperations } from '../api/control-server.ts'
import { StartFailure } from '../local/supervised-process.ts'
import { removeStaleFolder } from './private-folder.ts'

/**
 * Opens the control socket in a private folder and says where it is in the data folder, which must be locked: what a
 * gateway before this one left there is removed. Gives how to close it.
 */
export async function openControl(
  operations: ServedOperations,
  { dataFolder, privateFolder }: { readonly dataFolder: string; readonly privateFolder: string },
): Promise<() => Promise<void>> {
  const file = join(dataFolder, CONTROL_FILE)
  const before = await readAddress(file)
  if (before !== null) await removeStaleFolder(before.socket)
  const address: ControlAddress = { socket: join(privateFolder, 'control.sock'), pid: process.pid }
  const server = createControlServer(operations)
  // Nobody else can reach a socket in a folder of mode 0700, whatever its own bits are.
  server.listen(address.socket)
  await once(server, 'listening')
  await writeFile(file, JSON.stringify(address), { mode: 0o600 })
  return async () => {
    await rm(file, { force: true })
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}

/**
 * Opens the control socket where the operator wants it, for this user alone (mode 0600). A socket that a
 * killed gateway left there is replaced; rejects with StartFailure when somebody answers there, or it cannot be made.
 */
export async function openControlAt(
  operations: ServedOperations,
  socketPath: string,
): Promise<() => Promise<void>> {
  const server = createControlServer(operations)
  try {
    await removeStaleSocket(socketPath)
    await listenPrivately(server, socketPath)
  } catch (error) {
    if (error instanceof StartFailure) throw error
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown fault'
    throw new StartFailure(`control: CONTROL_SOCKET ${socketPath} cannot be listened on (${code})`)
  }
  return async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}

/** The socket has its mode from the first moment. */
async function listenPrivately(server: Server, socketPath: string): Promise<void> {
  const umask = process.umask(0o177)
  try {
    server.listen(socketPath)
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening')
}

async function removeStaleSocket(socketPath: string): Promise<void> {
  const found = await lstat(socketPath).catch(() => null)
  if (found === null) return
  const inUse = new StartFailure(`control: CONTROL_SOCKET ${socketPath} is in use`)
  if (!found.isSocket() || (await isAnswered(socketPath))) throw inUse
  await rm(socketPath, { force: true })
}

function isAnswered(socketPath: string): Promise<boolean> {
  const socket = connect(socketPath)
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
  }).finally(() => socket.destroy())
}

async function readAddress(file: string): Promise<ControlAddress | null> {
  try {
    const { socket, pid } = JSON.parse(await readFile(file, 'utf8'))
    return typeof socket === 'string' && typeof pid === 'number' ? { socket, pid } : null
  } catch {
    return null
  }
}
