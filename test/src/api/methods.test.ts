import { request } from 'node:http'
import { expect, it } from 'vitest'
import { outcomeOf } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'

const gateway = await useGateway()

/** Methods of each path, `Allow` as it should be. */
function methodsByPath(): ReadonlyMap<string, ReadonlySet<string>> {
  const byPath = new Map<string, Set<string>>()
  for (const { method, path } of gateway.app.routes) {
    const methods = byPath.get(path) ?? new Set()
    byPath.set(path, methods.add(method))
    if (method === 'GET') methods.add('HEAD')
  }
  return byPath
}

const examplePath = (pattern: string) => pattern.replaceAll(/:\w+/g, 'ab')

const allowOf = (reply: Response) => new Set(reply.headers.get('allow')?.split(', '))

it('every path refuses a method that it has not with 405 and says which it has', async () => {
  const paths = methodsByPath()
  expect(paths.size).toBeGreaterThan(15)
  for (const [path, methods] of paths) {
    const method = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'].find((one) => !methods.has(one))
    const reply = await fetch(gateway.url + examplePath(path), { method: method ?? 'PATCH' })
    expect([path, reply.status, allowOf(reply)]).toEqual([path, 405, methods])
    expect(await outcomeOf(reply)).toEqual([405, 'method_not_allowed'])
  }
})

it.each(['PROPFIND', 'TRACE', 'QUERY', 'MKCOL'])(
  'a path answers the method %s, which no path has, with 501',
  async (method) => {
    for (const path of ['/', '/v1/models']) expect(await statusOf(method, path)).toBe(501)
  },
)

it('a path of each kind answers with the headers of every answer, whatever the outcome', async () => {
  const routes = new Map(gateway.app.routes.map((route) => [route.tag, route]))
  for (const { method, path } of routes.values()) {
    const reply = await fetch(gateway.url + examplePath(path), { method })
    await reply.arrayBuffer()
    expect([path, Object.fromEntries(reply.headers)]).toEqual([
      path,
      expect.objectContaining({
        'x-request-id': expect.stringMatching(/^req_/),
        'openai-processing-ms': expect.stringMatching(/^\d+$/),
        'x-content-type-options': 'nosniff',
        'content-security-policy': expect.stringContaining("default-src 'none'"),
        'referrer-policy': 'no-referrer',
      }),
    ])
  }
})

it.each([
  '*',
  '/%',
  '/%zz',
  '/v1/log/%zz',
  '/v1/log/%00',
  '//',
  '/..',
  '/v1//models',
  'http://x/nothing',
])('the invalid target %s is answered in the envelope, without a fault of ours', async (path) => {
  for (const method of ['GET', 'OPTIONS', 'POST'])
    expect(await statusOf(method, path)).toBeLessThan(500)
})

/** For methods and targets that fetch does not send. */
function statusOf(method: string, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request({ port: gateway.port, host: '127.0.0.1', method, path }, (reply) => {
      reply.resume().on('end', () => resolve(reply.statusCode))
    })
      .on('error', reject)
      .end()
  })
}
