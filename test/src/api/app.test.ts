import { expect, it } from 'vitest'
import { CHAT_REQUEST, outcomeOf, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { connectRaw } from '../../support/raw-http.ts'

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
    boot_configuration: { protocol_version: 1, chain_id: 31337 },
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
