import Koa from 'koa'
import { Pool } from 'undici'

/**
 * The comparator: the least that Koa and undici can do to forward a chat request. It reads the
 * body, sends it on, and pipes the answer back, without keys, checks, hashes or records. It runs as
 * a separate process with the upstream's origin as its argument, and prints its port.
 */
const upstream = new Pool(process.argv[2] ?? '', { connections: 512, pipelining: 1 })
const app = new Koa()
// It does not log callers who leave.
app.silent = true
app.use(async (context) => {
  const parts: Buffer[] = []
  for await (const part of context.req) parts.push(part)
  const response = await upstream.request({
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { 'content-type': 'application/json' },
    body: Buffer.concat(parts),
  })
  context.status = response.statusCode
  context.type = String(response.headers['content-type'] ?? 'application/json')
  context.body = response.body
})
const server = app.listen(0, '127.0.0.1', () => {
  const address = server.address()
  process.stdout.write(`${typeof address === 'object' && address ? address.port : ''}\n`)
})
process.on('disconnect', () => process.exit(0))
