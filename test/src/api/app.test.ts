import { expect, it } from 'vitest'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, useGateway } from '../../support/gateway.ts'
import { startPostgres } from '../../support/postgres.ts'
import { connectRaw } from '../../support/raw-http.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'
import { until } from '../../support/until.ts'

const gateway = await useGateway()

it('the route / says in JSON what this server is', async () => {
  const reply = await fetch(`${gateway.url}/`)
  expect(reply.status).toBe(200)
  expect(await reply.json()).toEqual({
    title: expect.any(String),
    description: expect.any(String),
  })
})

it.each(['/api/hello', '/v1/verified/anthropic/api/hello'])(
  'the probe HEAD %s of coding agents is answered without a key',
  async (path) => {
    const reply = await fetch(gateway.url + path, { method: 'HEAD' })
    expect(reply.status).toBe(200)
    expect(await reply.text()).toBe('')
  },
)

it('the public attestation is the current document, or a fresh one over the given nonce', async () => {
  const path = `${gateway.url}/v1/attestation`
  const current = (await (await fetch(path)).json()) as Record<string, unknown>
  expect(current).toMatchObject({
    notary: gateway.enclave.notary,
    public_key: expect.stringMatching(/^0x04[0-9a-f]{128}$/),
    boot_configuration: { protocol_version: 4, chain_id: 31337 },
  })
  const fresh = await (await fetch(`${path}?nonce=0x${'AB'.repeat(16)}`)).json()
  expect(fresh).toEqual({ ...current, attestation: Buffer.alloc(16, 0xab).toString('base64') })
})

it.each([
  ['my-id_1.2:3', true],
  ['x'.repeat(128), true],
  ['x'.repeat(129), false],
  ['has space', false],
  ['{"json":1}', false],
])("an answer takes the caller's id %j only in its form: %s", async (id, isTaken) => {
  const reply = await fetch(`${gateway.url}/`, { headers: { 'x-request-id': id } })
  expect(reply.headers.get('x-request-id') === id).toBe(isTaken)
})

it.each([
  ['GET', '/nothing', 404, 'not_found', null],
  ['GET', '/V1/attestation', 404, 'not_found', null],
  ['GET', '/v1/verified/chat/completions/a/b', 404, 'not_found', null],
  ['DELETE', VERIFIED_PATH, 405, 'method_not_allowed', 'HEAD, GET, POST'],
  ['PROPFIND', '/', 501, 'not_implemented', 'HEAD, GET'],
])('the answer to %s %s is JSON: %i %s', async (method, path, status, code, allow) => {
  const reply = await fetch(gateway.url + path, { method })
  expect(reply.headers.get('allow')).toBe(allow)
  expect(await outcomeOf(reply)).toEqual([status, code])
})

// https://github.com/vercel/ai/issues/17944
it.each([
  ['POST', '/chat/completions'],
  ['POST', '/v1/v1/chat/completions'],
  ['POST', '/embeddings'],
  ['POST', '/responses'],
  ['POST', '/tool/search'],
  ['GET', '/models/gpt-4o'],
  ['GET', '/v1/v1/models/vendor/model'],
  ['POST', '/messages'],
  ['POST', '/v1/v1/messages'],
  ['POST', '/v1/v1/messages/count_tokens'],
])('the answer to %s %s, as of a wrong base URL, says which there are', async (method, path) => {
  const reply = await fetch(gateway.url + path, { method })
  expect(reply.status).toBe(404)
  const { message } = JSON.parse(await reply.text()).error
  expect(message).toContain('is the base URL right?')
  expect(message).toContain('/v1/verified/chat/completions')
  expect(message).toContain("For Anthropic's API it has no /v1 at its end")
})

it.each([
  ['Bearer Bearer sk-x', 'the header has "Bearer" twice'],
  ['Bearer "sk-x"', 'a quotation mark'],
  ['sk-x', 'expected the header Authorization: Bearer <API_KEY>'],
  ['Bearer sk x', 'a space within the key'],
])('an answer to the header %j says what is wrong with it', async (authorization, hint) => {
  const reply = await fetch(gateway.url + VERIFIED_PATH, { headers: { authorization } })
  const text = await reply.text()
  expect(await outcomeOf(new Response(text, reply))).toEqual([401, 'invalid_credentials'])
  expect(JSON.parse(text).error.message).toContain(hint)
  expect(text).not.toContain('sk')
})

it('an answer leaves its connection usable, also after a body that was refused', async () => {
  const connection = await connectRaw(gateway.port)
  const head = `POST ${VERIFIED_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 100000\r\n`
  connection.write(`${head}\r\n${'x'.repeat(100_000)}GET / HTTP/1.1\r\nhost: x\r\n\r\n`)
  await connection.until(/authorization_missing[\s\S]*HTTP\/1.1 200 OK[\s\S]*Affidavit/)
  connection.socket.destroy()
})

it('every answer is logged in one line, without what was said', async () => {
  const before = gateway.logLines.length
  await postChat(
    gateway,
    { ...CHAT_REQUEST, user: 'marmalade', n: 0 },
    { headers: { 'x-request-id': 'log-me' } },
  )
  await expect.poll(() => gateway.logLines.length).toBe(before + 1)
  expect(JSON.parse(gateway.logLines[before] ?? '')).toMatchObject({
    requestId: 'log-me',
    method: 'POST',
    path: VERIFIED_PATH,
    status: 422,
    accountId: gateway.accountId,
  })
  expect(gateway.logLines[before]).not.toContain('marmalade')
  expect(gateway.logLines[before]).not.toContain(gateway.key)
})

it('a server that closes lets a call that is under way finish, and takes no other', async () => {
  const closing = await startGateway({ settings: { shutdownGraceMs: FAR_OFF_MS } })
  const goOn = Promise.withResolvers<void>()
  closing.enclave.setScript(async (call) => {
    await goOn.promise
    await answerWhole({})(call)
  })
  const [idle, busy] = [await connectRaw(closing.port), await connectRaw(closing.port)]
  idle.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  await idle.until(/Affidavit/)
  const reply = postChat(closing, CHAT_REQUEST)
  await expect.poll(() => closing.enclave.calls).toHaveLength(1)
  // The server has read half of the second request when it answers the first.
  busy.write('GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n')
  await busy.until(/Affidavit/)
  const closed = closing.app.close()
  await idle.closed
  busy.write('\r\n')
  expect(await busy.closed).toMatch(/HTTP\/1.1 503 [\s\S]*connection: close[\s\S]*"shutting_down"/)
  await expect(fetch(`${closing.url}/`)).rejects.toThrow()
  goOn.resolve()
  expect((await reply).status).toBe(200)
  await closed
  await closing.stop()
})

it('a server that closes ends calls that take too long, also those whose callers left, and says so', async () => {
  const closing = await startGateway({ settings: { shutdownGraceMs: 200 } })
  const { calls } = closing.enclave
  let leave: (() => void) | null = null
  closing.enclave.setScript(({ response, body }) => {
    if (JSON.parse(body.toString()).stream) {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('data: {"a":1}\n\n')
    }
    leave?.()
  })
  const reply = postChat(closing, CHAT_REQUEST)
  const streaming = await postChat(closing, { ...CHAT_REQUEST, stream: true })
  await expect.poll(() => calls).toHaveLength(2)
  for (const stream of [false, true]) {
    const leaving = new AbortController()
    leave = () => leaving.abort()
    const init = { headers: { 'idempotency-key': `${stream}` }, signal: leaving.signal }
    await postChat(closing, { ...CHAT_REQUEST, stream }, init).catch(() => null)
    await expect.poll(() => closing.logLines.at(-1)).toContain('"isWhole":false')
  }
  const startedAtMs = performance.now()
  const closed = closing.app.close()
  expect(await outcomeOf(await reply)).toEqual([503, 'shutting_down'])
  const text = await streaming.text()
  expect(text).toContain('data: {"a":1}\n\nevent: error\ndata: {"response":"NOK"')
  expect(text).toContain('shutting_down')
  await closed
  expect(calls).toHaveLength(4)
  await Promise.all(calls.map(({ left }) => left))
  expect(performance.now() - startedAtMs).toBeLessThan(AT_ONCE_MS)
  // Another server has that port.
  const taken = closing.app.listen({ host: '127.0.0.1', port: gateway.port })
  await expect(taken).rejects.toMatchObject({ code: 'EADDRINUSE' })
  await closing.stop()
})

it(
  'routes answer 503 while Postgres is away, with the time of the next try and nothing else, and serve once it is back',
  async () => {
    const fixedKey = 'a key of the development'.replaceAll(' ', '-')
    const postgres = await startPostgres()
    const away = await startGateway({ postgres, fixedKey })
    const get = (path: string) => getPath({ ...away, key: fixedKey }, path)
    await postgres.kill()
    // Backends outlive the killed server for a moment, and still answer.
    const isAway = async () => (await get('/v1/network/stats')).status === 503
    await until('Postgres is away', isAway)
    const paths = ['/v1/log', VERIFIED_PATH, '/v1/dashboard/keys', '/v1/network/stats']
    // Connections of the pool may still be about to break: a query that fails on them has the
    // same answer.
    for (const path of [...paths, ...paths, ...paths]) {
      const reply = await get(path)
      expect([path, reply.status, reply.headers.get('retry-after')]).toEqual([path, 503, '1'])
      const { error } = JSON.parse(await reply.text())
      expect(error.code).toBe('not_ready')
      expect(error.message).not.toMatch(/ECONN|terminated|127\.0\.0\.1/)
    }
    expect(away.logLines.join()).not.toContain('unexpected error')
    const cause = expect.objectContaining({ code: 'ECONNREFUSED' })
    expect(away.logLines.map((line) => JSON.parse(line).err)).toContainEqual(
      expect.objectContaining({ type: 'DatabaseAwayError', cause }),
    )
    await postgres.restart()
    for (const path of paths)
      await expect.poll(async () => [path, (await get(path)).status]).toEqual([path, 200])
    await away.stop().catch(() => {})
    await postgres.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
