import { afterEach, describe, expect, it, vi } from 'vitest'

// By names that the type checker does not follow: only the pages' own configuration has the types
// of a browser.
const room = (path: string) => new URL(`../../../../src/web/${path}`, import.meta.url).href
const { askOwnGateway, askText, askEvidence, OwnGatewayFault } = await import(
  room('kit/gateway.ts')
)
const { openSession, may } = await import(room('console/session.ts'))

afterEach(() => void vi.unstubAllGlobals())

/** Answers every request of the page, and gives the requests. */
function serve(answer: () => Response) {
  const asked: { readonly path: string; readonly init: RequestInit }[] = []
  vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
    asked.push({ path, init })
    return answer()
  })
  return asked
}

const refused = (status: number, value: unknown) => () =>
  Response.json(value, { status, headers: { 'x-request-id': 'req_1' } })

describe("a page's call of its gateway", () => {
  it('a call of a page sends the key and no cookies', async () => {
    const asked = serve(() => Response.json({ a: 1 }))
    expect(await askOwnGateway('/v1/models', { key: 'afd_x' })).toEqual({ a: 1 })
    await askOwnGateway('/v1/log')
    expect(asked.map(({ path, init }) => [path, init.credentials])).toEqual([
      ['/v1/models', 'omit'],
      ['/v1/log', 'omit'],
    ])
    const keys = asked.map(({ init }) => new Headers(init.headers).get('authorization'))
    expect(keys).toEqual(['Bearer afd_x', null])
  })

  it.each([
    [403, { error: { code: 'insufficient_scope', message: 'no' } }, 'insufficient_scope', 'no'],
    [422, { detail: [{ loc: ['query', 'n'], msg: 'bad' }] }, '422', 'query.n: bad'],
    [500, 'text', '500', 'The gateway answered with status 500.'],
  ])('an answer with status %i and %j is a fault', async (status, value, code, message) => {
    serve(refused(status, value))
    for (const ask of [askOwnGateway, askText, askEvidence])
      await expect(ask('/x')).rejects.toMatchObject({ status, code, message, requestId: 'req_1' })
  })

  it('an answer that is not JSON is a fault, and a text is given as it is', async () => {
    serve(() => new Response('{"a": 1', { headers: { 'x-request-id': 'req_2' } }))
    await expect(askOwnGateway('/x')).rejects.toMatchObject({ status: 200, requestId: 'req_2' })
    await expect(askEvidence('/x')).rejects.toMatchObject({ code: 'bad_answer', status: 200 })
    expect(await askText('/x')).toBe('{"a": 1')
  })

  it('evidence keeps the digits of its numbers, and a member twice is refused', async () => {
    serve(() => new Response('{"a": 1.10, "a": 2}'))
    await expect(askEvidence('/x')).rejects.toMatchObject({ code: 'bad_answer' })
    expect(await askOwnGateway('/x')).toEqual({ a: 2 })
  })

  it('a gateway that does not answer is named as that, and a page that leaves is not', async () => {
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('failed to fetch')))
    await expect(askOwnGateway('/x')).rejects.toMatchObject({ status: 0, code: 'unreachable' })
    const reason = new Error('left')
    const call = { signal: AbortSignal.abort(reason) }
    await expect(askOwnGateway('/x', call)).rejects.toBe(reason)
  })
})

describe('the session of a page', () => {
  const holder = { scopes: ['inference'] }
  const open = () => {
    const signOut = vi.fn()
    return { signOut, session: openSession({ key: 'afd_x', holder, signOut }) }
  }

  it.each([
    [401, 1],
    [403, 0],
    [500, 0],
  ])('the session of a page with an answer of %i signs out %i times', async (status, times) => {
    const { session, signOut } = open()
    serve(refused(status, {}))
    await expect(session.ask('/x')).rejects.toBeInstanceOf(OwnGatewayFault)
    expect(signOut).toHaveBeenCalledTimes(times)
    await expect(session.askText('/x')).rejects.toBeInstanceOf(OwnGatewayFault)
    expect(signOut).toHaveBeenCalledTimes(2 * times)
  })

  it('the session of a page sends its key with every call', async () => {
    const { session } = open()
    const asked = serve(() => Response.json({}))
    await session.ask('/x', { method: 'POST' })
    await session.askText('/y')
    for (const { init } of asked)
      expect(new Headers(init.headers).get('authorization')).toBe('Bearer afd_x')
    expect([may(session, 'inference'), may(session, 'admin')]).toEqual([true, false])
  })
})
