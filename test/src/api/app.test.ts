import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { type PostgresServer, startPostgres } from '../../support/postgres.ts'
import { connectRaw } from '../../support/raw-http.ts'
import { answerWhole, type CompletionScript, send } from '../../support/scripted-enclave.ts'
import { until } from '../../support/until.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
}, GATEWAY_HOOK_TIMEOUT_MS)

describe('the public routes', () => {
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

  it.each(['', 'ab', 'zz'.repeat(16), 'ab'.repeat(65)])(
    'the public attestation refuses the nonce %j',
    async (nonce) => {
      const reply = await fetch(`${gateway.url}/v1/attestation?nonce=${nonce}`)
      expect(await outcomeOf(reply)).toEqual([422, ['query.nonce']])
    },
  )
})

describe('every answer', () => {
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
    ['POST', '/', 405, 'method_not_allowed', 'HEAD, GET'],
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
})

describe('close', () => {
  /**
   * A gateway in which a call of `body` is under way, whose enclave goes on with `script` when
   * `goOn` resolves.
   */
  async function callUnderWay(
    script: CompletionScript,
    {
      body = CHAT_REQUEST,
      shutdownGraceMs = 200,
    }: { body?: object; shutdownGraceMs?: number } = {},
  ) {
    const closing = await startGateway({ settings: { shutdownGraceMs } })
    const goOn = Promise.withResolvers<void>()
    const arrived = Promise.withResolvers<void>()
    closing.enclave.setScript(async (call) => {
      arrived.resolve()
      await goOn.promise
      await script(call)
    })
    const idle = await connectRaw(closing.port)
    idle.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
    await idle.until(/Affidavit/)
    const reply = postChat(closing, body)
    await arrived.promise
    return { closing, goOn, idle, reply }
  }

  it('a server that closes lets a call that is under way finish, and takes no other', async () => {
    const { closing, goOn, idle, reply } = await callUnderWay(answerWhole({}), {
      shutdownGraceMs: FAR_OFF_MS,
    })
    const busy = await connectRaw(closing.port)
    // The server has read half of the second request when it answers the first.
    busy.write('GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n')
    await busy.until(/Affidavit/)
    const closed = closing.app.close()
    await idle.closed
    busy.write('\r\n')
    expect(await busy.closed).toMatch(
      /HTTP\/1.1 503 [\s\S]*connection: close[\s\S]*"shutting_down"/,
    )
    await expect(fetch(`${closing.url}/`)).rejects.toThrow()
    goOn.resolve()
    expect((await reply).status).toBe(200)
    await closed
    await closing.stop()
  })

  it('a server that closes ends a call that takes too long, and says so', async () => {
    const { closing, reply } = await callUnderWay(({ response }) => send(response, {}))
    const startedAtMs = performance.now()
    const closed = closing.app.close()
    expect(await outcomeOf(await reply)).toEqual([503, 'shutting_down'])
    await closed
    expect(performance.now() - startedAtMs).toBeLessThan(AT_ONCE_MS)
    await closing.stop()
  })

  it.each([false, true])(
    'a server that closes ends a call with an Idempotency-Key whose caller left: stream %s',
    async (stream) => {
      const closing = await startGateway({ settings: { shutdownGraceMs: 200 } })
      const leaving = new AbortController()
      closing.enclave.setScript(({ response }) => {
        if (stream) response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
        leaving.abort()
      })
      const headers = { 'idempotency-key': 'left' }
      const body = { ...CHAT_REQUEST, stream }
      await postChat(closing, body, { headers, signal: leaving.signal }).catch(() => null)
      await expect.poll(() => closing.logLines.at(-1)).toContain('"isWhole":false')
      await closing.app.close()
      await closing.enclave.calls.at(-1)?.left
      await closing.stop()
    },
  )

  it('a server that closes ends a stream that takes too long with an error event', async () => {
    const { closing, goOn, reply } = await callUnderWay(
      ({ response }) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write('data: {"a":1}\n\n')
      },
      { body: { ...CHAT_REQUEST, stream: true } },
    )
    goOn.resolve()
    const streaming = await reply
    const closed = closing.app.close()
    const text = await streaming.text()
    expect(text).toContain('data: {"a":1}\n\nevent: error\ndata: {"response":"NOK"')
    expect(text).toContain('shutting_down')
    await closed
    await closing.stop()
  })
})

it(
  'a server that listens says when its port is taken',
  async () => {
    const other = await startGateway()
    await other.app.close()
    await expect(other.app.listen({ host: '127.0.0.1', port: gateway.port })).rejects.toMatchObject(
      {
        code: 'EADDRINUSE',
      },
    )
    await other.stop().catch(() => {})
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)

describe('while Postgres is away', () => {
  const FIXED_KEY = 'a key of the development'.replaceAll(' ', '-')
  let own: PostgresServer
  let away: TestGateway
  beforeAll(async () => {
    own = await startPostgres()
    away = await startGateway({ postgres: own, fixedKey: FIXED_KEY })
    await own.kill()
    // Backends outlive the killed server for a moment, and still answer.
    const isAway = async () =>
      (await getPath({ ...away, key: FIXED_KEY }, '/v1/network/stats')).status === 503
    await until('Postgres is away', isAway)
  }, GATEWAY_HOOK_TIMEOUT_MS)
  afterAll(async () => {
    await away.stop().catch(() => {})
    await own.stop()
  }, GATEWAY_HOOK_TIMEOUT_MS)

  const PATHS = ['/v1/log', VERIFIED_PATH, '/v1/dashboard/keys', '/v1/network/stats']

  it.each(PATHS)(
    'the route %s answers 503 while Postgres is away, says when to try again, and nothing else',
    async (path) => {
      // Connections of the pool may still be about to break: a query that fails on them has the
      // same answer.
      for (let times = 0; times < 3; times++) {
        const reply = await getPath({ ...away, key: FIXED_KEY }, path)
        expect([reply.status, reply.headers.get('retry-after')]).toEqual([503, '1'])
        const { error } = JSON.parse(await reply.text())
        expect(error.code).toBe('not_ready')
        expect(error.message).not.toMatch(/ECONN|terminated|127\.0\.0\.1/)
      }
      expect(away.logLines.join()).toContain('ECONNREFUSED')
    },
  )

  it('the log has the cause of each refusal while Postgres is away, and no unexpected error', () => {
    expect(away.logLines.join()).not.toContain('unexpected error')
    const causes = away.logLines
      .map((line) => JSON.parse(line).err)
      .filter((err) => err !== undefined)
    expect(causes).toContainEqual(
      expect.objectContaining({
        type: 'DatabaseAwayError',
        cause: expect.objectContaining({ code: 'ECONNREFUSED' }),
      }),
    )
  })

  it(
    'calls are served again when Postgres is back',
    async () => {
      await own.restart()
      for (const path of PATHS)
        expect((await getPath({ ...away, key: FIXED_KEY }, path)).status).toBe(200)
    },
    GATEWAY_HOOK_TIMEOUT_MS,
  )
})
