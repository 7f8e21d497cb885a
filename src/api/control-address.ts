import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'

/** File in the data folder with the running gateway's control address. */
export const CONTROL_FILE = 'control.json'

export type ControlAddress = { readonly socket: string; readonly pid: number }

/** Null if the file is missing or incomplete. */
export async function readControlAddress(dataFolder: string): Promise<ControlAddress | null> {
  try {
    const { socket, pid } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    return typeof socket === 'string' && typeof pid === 'number' ? { socket, pid } : null
  } catch {
    return null
  }
}

/** True if a process accepts connections on the socket. */
export function isAnswered(socketPath: string): Promise<boolean> {
  const socket = connect(socketPath)
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
  }).finally(() => socket.destroy())
}

/** The command line sends the id of its user, in digits. */
export const OPERATOR_UID_HEADER = 'x-affidavit-uid'

/** Null: the user id is not known. */
export function nameOperator(uid: string | null): string {
  return uid === null || !/^\d{1,10}$/.test(uid) ? 'operator' : `operator (uid ${uid})`
}

/** Number of the gateway's processes. Each has its own control socket, and states this number. */
export const PROCESSES_HEADER = 'affidavit-processes'
