import type { TestGateway } from './gateway.ts'

export const VERIFIED_PATH = '/v1/verified/chat/completions'

/** The smallest request that is served. */
export const CHAT_REQUEST = { model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] }

/**
 * Posts a chat request (a value, or a text as it is) to the verified endpoint. Members of `init`
 * override the defaults.
 */
export function postChat(
  gateway: Pick<TestGateway, 'url' | 'key'>,
  body: unknown,
  init: RequestInit & { readonly headers?: Record<string, string> } = {},
): Promise<Response> {
  return fetch(gateway.url + VERIFIED_PATH, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...init,
    headers: {
      authorization: `Bearer ${gateway.key}`,
      'content-type': 'application/json',
      ...init.headers,
    },
  })
}

/** Gets a path with the gateway's key. */
export function getPath(
  gateway: Pick<TestGateway, 'url' | 'key'>,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return fetch(gateway.url + path, {
    headers: { authorization: `Bearer ${gateway.key}`, ...headers },
  })
}

/** Status and error code (or the locs of a 422) of an answer that must be JSON. */
export async function outcomeOf(reply: Response): Promise<readonly [number, unknown]> {
  expectJson(reply)
  const { error, detail } = JSON.parse(await reply.text())
  const locs = detail?.map(({ loc }: { loc: readonly unknown[] }) => loc.join('.'))
  return [reply.status, locs ?? error?.code]
}

function expectJson(reply: Response): void {
  const type = reply.headers.get('content-type')
  if (type !== 'application/json; charset=utf-8') throw new Error(`expected JSON, got ${type}`)
}
