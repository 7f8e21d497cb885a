import { once } from 'node:events'
import { lstat, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { removeStaleFolder } from '../storage/data-folder.ts'
import {
  type AccountOrder,
  CONTROL_FILE,
  type ControlAddress,
  type EnclaveOperations,
  isName,
  type KeyOrder,
  type Operations,
  type RelayerOperations,
} from './control-operations.ts'
import { isScope } from './scopes.ts'

/** Largest request, bytes: two names. */
export const CONTROL_BODY_BYTES_MAX = 4096

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
    throw new StartFailure(
      `control: CONTROL_SOCKET ${socketPath} cannot be listened on (${systemCodeOf(error) ?? 'unknown fault'})`,
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
 * what only the process that holds the embedded database can do. There is no authentication: the
 * socket's permissions decide who may connect.
 *
 * - `GET /keys`, `POST /keys` KeyOrder, `DELETE /keys/{id}`;
 * - `GET /accounts`, `POST /accounts` { name }, `PUT /accounts` AccountOrder;
 * - where there are enclaves `GET /enclaves`, and with { url } `POST` (add), `PUT` (drain) and
 *   `DELETE` (remove);
 * - where there is a chain `GET /relayers`.
 */
export function createControlServer(operations: ServedOperations): Server {
  return createServer((request, response) => {
    answer(operations, request)
      .catch(() => ({ status: 500, body: { message: 'the gateway could not do it; its log says more' } }))
      .then(({ status, body }) => send(response, status, body))
  })
}

/** Without enclaves or relayers, those resources are unknown. */
export type ServedOperations = Operations & {
  readonly enclaves?: EnclaveOperations
  readonly relayers?: RelayerOperations
}

type Answer = { readonly status: number; readonly body: unknown }

async function answer(operations: ServedOperations, request: IncomingMessage): Promise<Answer> {
  const [, resource, id = ''] = (request.url ?? '').split('/')
  if (resource === 'keys') return answerKeys(operations, request, id)
  if (resource === 'accounts') return answerAccounts(operations, request)
  if (resource === 'enclaves' && operations.enclaves) return answerEnclaves(operations.enclaves, request)
  if (resource === 'relayers' && operations.relayers)
    return request.method === 'GET' ? done(await operations.relayers.list()) : refuse(405, 'unknown method')
  return refuse(404, 'unknown resource')
}

async function answerKeys({ keys }: Operations, request: IncomingMessage, id: string): Promise<Answer> {
  switch (request.method) {
    case 'GET':
      return done(await keys.list())
    case 'POST': {
      const order = parseKeyOrder(await readBody(request))
      return order === null
        ? refuse(400, 'expected account, name, scopes and expiry')
        : done(await keys.create(order))
    }
    case 'DELETE':
      return done({ outcome: await keys.revoke(decodeURIComponent(id)) })
    default:
      return refuse(405, 'unknown method')
  }
}

async function answerAccounts({ accounts }: Operations, request: IncomingMessage): Promise<Answer> {
  switch (request.method) {
    case 'GET':
      return done(await accounts.list())
    case 'POST': {
      const order = parseAccountOrder(await readBody(request))
      return order === null ? refuse(400, 'expected a name') : done(await accounts.open(order.name))
    }
    case 'PUT': {
      const order = parseAccountOrder(await readBody(request))
      return order === null
        ? refuse(400, 'expected a name and a tier')
        : done({ outcome: await accounts.setTier(order) })
    }
    default:
      return refuse(405, 'unknown method')
  }
}

async function answerEnclaves(enclaves: EnclaveOperations, request: IncomingMessage): Promise<Answer> {
  if (request.method === 'GET') return done(await enclaves.list())
  const order = ENCLAVE_ORDERS[request.method ?? '']
  if (order === undefined) return refuse(405, 'unknown method')
  const { url } = (await readBody(request)) ?? {}
  if (typeof url !== 'string') return refuse(400, 'expected the url of an enclave')
  return done({ outcome: await enclaves[order](url) })
}

const ENCLAVE_ORDERS: Readonly<Record<string, 'add' | 'drain' | 'remove'>> = {
  POST: 'add',
  PUT: 'drain',
  DELETE: 'remove',
}

function done(body: unknown): Answer {
  return { status: 200, body }
}

function refuse(status: number, message: string): Answer {
  return { status, body: { message } }
}

function parseKeyOrder(value: Readonly<Record<string, unknown>> | null): KeyOrder | null {
  const { account, name, scopes, expires_at: expiresAt } = value ?? {}
  if (typeof account !== 'string' || typeof name !== 'string' || !isName(account) || !isName(name))
    return null
  if (!Array.isArray(scopes) || scopes.length === 0 || !scopes.every(isScope)) return null
  if (expiresAt !== null && !Number.isSafeInteger(expiresAt)) return null
  return { account, name, scopes, expires_at: typeof expiresAt === 'number' ? expiresAt : null }
}

function parseAccountOrder(value: Readonly<Record<string, unknown>> | null): AccountOrder | null {
  const { name, tier = null } = value ?? {}
  if (typeof name !== 'string' || !isName(name)) return null
  if (tier !== null && (typeof tier !== 'string' || !isName(tier))) return null
  return { name, tier }
}

/** Null for what is no JSON object, and for what is too long. */
async function readBody(request: IncomingMessage): Promise<Readonly<Record<string, unknown>> | null> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) {
    text += part
    if (text.length > CONTROL_BODY_BYTES_MAX) return null
  }
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' ? (value as Readonly<Record<string, unknown>> | null) : null
  } catch {
    return null
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' })
  response.end(JSON.stringify(body))
}
