import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { isName, type KeyOperations } from './operations.ts'

/** Largest request, bytes: two names. */
export const CONTROL_BODY_BYTES_MAX = 4096

/**
 * Gives the server of the gateway's control socket, not yet listening. It does for `affidavit keys` what only the process
 * that holds the embedded database can do. There is no authentication: the socket's permissions decide who may connect.
 *
 * `GET /keys`, `POST /keys` { account, name }, `DELETE /keys/{id}`.
 */
export function createControlServer(keys: KeyOperations): Server {
  return createServer((request, response) => {
    answer(keys, request)
      .catch(() => ({ status: 500, body: { message: 'the gateway could not do it; its log says more' } }))
      .then(({ status, body }) => send(response, status, body))
  })
}

type Answer = { readonly status: number; readonly body: unknown }

async function answer(keys: KeyOperations, request: IncomingMessage): Promise<Answer> {
  const [, resource, id = ''] = (request.url ?? '').split('/')
  if (resource !== 'keys') return refuse(404, 'unknown resource')
  switch (request.method) {
    case 'GET':
      return { status: 200, body: await keys.list() }
    case 'POST': {
      const names = parseNames(await readBody(request))
      return names === null
        ? refuse(400, 'expected account and name')
        : { status: 200, body: await keys.create(names) }
    }
    case 'DELETE':
      return { status: 200, body: { outcome: await keys.revoke(decodeURIComponent(id)) } }
    default:
      return refuse(405, 'unknown method')
  }
}

function refuse(status: number, message: string): Answer {
  return { status, body: { message } }
}

function parseNames(text: string): { readonly account: string; readonly name: string } | null {
  try {
    const { account, name } = JSON.parse(text)
    const valid = typeof account === 'string' && typeof name === 'string' && isName(account) && isName(name)
    return valid ? { account, name } : null
  } catch {
    return null
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) {
    text += part
    if (text.length > CONTROL_BODY_BYTES_MAX) return ''
  }
  return text
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' })
  response.end(JSON.stringify(body))
}
