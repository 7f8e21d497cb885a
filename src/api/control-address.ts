import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'

// Where the control socket is, and who asks there: for the gateway and for the command line.

/** Name of the file in the data folder that says where the running gateway can be asked. */
export const CONTROL_FILE = 'control.json'

/** What the file holds. */
export type ControlAddress = { readonly socket: string; readonly pid: number }

/** Gives what the file in a data folder holds; null without a whole one. */
export async function readControlAddress(dataFolder: string): Promise<ControlAddress | null> {
  try {
    const { socket, pid } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    return typeof socket === 'string' && typeof pid === 'number' ? { socket, pid } : null
  } catch {
    return null
  }
}

/** Whether a process takes connections at the path of a socket. */
export function isAnswered(socketPath: string): Promise<boolean> {
  const socket = connect(socketPath)
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
  }).finally(() => socket.destroy())
}

/** Header in which the command line says the id of its user, in digits. */
export const OPERATOR_UID_HEADER = 'x-affidavit-uid'

/** How an operator is named, by the user's id; null where it is not known. */
export function nameOperator(uid: string | null): string {
  return uid === null || !/^\d{1,10}$/.test(uid) ? 'operator' : `operator (uid ${uid})`
}
