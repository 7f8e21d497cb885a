import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type AccountOrder,
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
