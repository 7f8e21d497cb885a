import { once } from 'node:events'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { CONTROL_FILE, type ControlAddress, type Operations } from '../control/operations.ts'
import { createControlServer } from '../control/server.ts'
import { removeStaleFolder } from './private-folder.ts'

/**
 * Opens the control socket in a private folder and says where it is in the data folder, which must be locked: what a
 * gateway before this one left there is removed. Gives how to close it.
 */
export async function openControl(
  operations: Operations,
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

async function readAddress(file: string): Promise<ControlAddress | null> {
  try {
    const { socket, pid } = JSON.parse(await readFile(file, 'utf8'))
    return typeof socket === 'string' && typeof pid === 'number' ? { socket, pid } : null
  } catch {
    return null
  }
}
