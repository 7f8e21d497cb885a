import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'

// Where the control socket is, and which operator calls there. The gateway and the command line use
// it.

/** Name of the file in the data folder that contains the running gateway's control address. */
export const CONTROL_FILE = 'control.json'

/** Content of the file. */
export type ControlAddress = { readonly socket: string; readonly pid: number }

/** Gives the content of the file in a data folder; null when it is missing or incomplete. */
export async function readControlAddress(dataFolder: string): Promise<ControlAddress | null> {
  try {
    const { socket, pid } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    return typeof socket === 'string' && typeof pid === 'number' ? { socket, pid } : null
  } catch {
    return null
  }
}

/** Whether a process accepts connections at the path of a socket. */
export function isAnswered(socketPath: string): Promise<boolean> {
  const socket = connect(socketPath)
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
  }).finally(() => socket.destroy())
}

/** Header in which the command line sends the id of its user, in digits. */
export const OPERATOR_UID_HEADER = 'x-affidavit-uid'

/** Gives the name of an operator with this user id; null when the id is not known. */
export function nameOperator(uid: string | null): string {
  return uid === null || !/^\d{1,10}$/.test(uid) ? 'operator' : `operator (uid ${uid})`
}
