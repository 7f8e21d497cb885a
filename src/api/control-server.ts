import { once } from 'node:events'
import { lstat, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { removeStaleFolder } from '../storage/data-folder.ts'
import {
  CONTROL_FILE,
  CONTROL_OPERATIONS,
  type ControlAddress,
  nameOperator,
  OPERATOR_UID_HEADER,
  type OperatorOf,
  type ServedOperations,
} from './control-operations.ts'

/** Largest request, bytes: two names. */
export const CONTROL_BODY_BYTES_MAX = 4096

/**
 * Opens the control socket in a private folder and says where it is in the data folder, which must
 * be locked: what a gateway before this one left there is removed. Gives how to close it.
 */
export async function openControl(
  operations: OperatorOf<ServedOperations>,
  { dataFolder, privateFolder }: { readonly dataFolder: string; readonly privateFolder: string },
): Promise<() => Promise<void>> {
  const file = join(dataFolder, CONTROL_FILE)
  const before = await readAddress(file)
  if (before !== null) await removeStaleFolder(before.socket)
  const address: ControlAddress = { socket: join(privateFolder, 'control.sock'), pid: process.pid }
  const server = createControlServer(operations)
  // No other user can reach a socket in a folder of mode 0700, even if its own mode allows it.
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
 * Opens the control socket where the operator wants it, for this user alone (mode 0600). A socket
 * that a killed gateway left there is replaced; rejects with StartFailure when a process answers
 * there, or it cannot be made.
 */
export async function openControlAt(
  operations: OperatorOf<ServedOperations>,
  socketPath: string,
): Promise<() => Promise<void>> {
  const server = createControlServer(operations)
  try {
    await removeStaleSocket(socketPath)
    await listenPrivately(server, socketPath)
  } catch (error) {
    if (error instanceof StartFailure) throw error
    throw new StartFailure(
      `control: the gateway cannot listen on CONTROL_SOCKET ${socketPath} (${systemCodeOf(error) ?? 'unknown fault'})`,
    )
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

/**
 * Gives the server of the gateway's control socket, not yet listening. It does for the command line
 * what only the process that holds the embedded database can do: CONTROL_OPERATIONS, each a method
 * at `/` and its resource. There is no authentication: the socket's permissions decide who may
 * connect.
 */
function createControlServer(operations: OperatorOf<ServedOperations>): Server {
  return createServer((request, response) => {
    answer(operations, request)
      .catch(() => ({
        status: 500,
        body: { message: 'the gateway could not do this; see its log for the reason' },
      }))
      .then(({ status, body }) => send(response, status, body))
  })
}

type Answer = { readonly status: number; readonly body: unknown }

async function answer(
  servedTo: OperatorOf<ServedOperations>,
  request: IncomingMessage,
): Promise<Answer> {
  // The user that it states is a claim: any client that reaches the socket acts as the operator.
  const uid = request.headers[OPERATOR_UID_HEADER]
  const who = nameOperator(typeof uid === 'string' ? uid : null)
  const served = servedTo({ who, accountId: null, from: 'control socket' })
  const [, resource = ''] = (request.url ?? '').split('/')
  const declared = Object.entries(CONTROL_OPERATIONS).find(([name]) => name === resource)?.[1]
  // A resource's operations take what its schemas take.
  const operations = served[resource as keyof ServedOperations] as
    | Readonly<Record<string, (order: unknown) => Promise<unknown>>>
    | undefined
  if (declared === undefined || operations === undefined) return refuse(404, 'unknown resource')
  const [verb, operation] =
    Object.entries(declared).find(([, { method }]) => method === request.method) ?? []
  if (verb === undefined || operation === undefined) return refuse(405, 'unknown method')
  const order = operation.order.safeParse(await readOrder(request))
  if (!order.success) return refuse(400, `expected ${operation.order.description}`)
  return { status: 200, body: await operations[verb]?.(order.data) }
}

function refuse(status: number, message: string): Answer {
  return { status, body: { message } }
}

/**
 * JSON value of the body, undefined without one; null for text that is not JSON, or is too long.
 */
async function readOrder(request: IncomingMessage): Promise<unknown> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) {
    text += part
    if (text.length > CONTROL_BODY_BYTES_MAX) return null
  }
  try {
    return text === '' ? undefined : JSON.parse(text)
  } catch {
    return null
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' })
  response.end(JSON.stringify(body))
}
