import { createHash } from 'node:crypto'
import { beforeEach, expect, it } from 'vitest'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { CHAT_REQUEST, outcomeOf, postChat, VERIFIED_PATH } from '../../../support/calls.ts'
import { useGateway } from '../../../support/gateway.ts'
import { connectRaw } from '../../../support/raw-http.ts'
import { answerFault, answerWhole } from '../../../support/scripted-enclave.ts'

/** Far below the default, which the test of the configuration holds. */
const BODY_BYTES_MAX = 2 ** 20
const gateway = await useGateway({
  credentials: new Map([['openai', 'sk-operator-key-1']]),
  settings: { bodyBytesMax: BODY_BYTES_MAX },
})
beforeEach(() => gateway.enclave.setScript(answerWhole({})))

const newest = () => gateway.enclave.calls.at(-1)

function failedChecks(record: JsonObject, request?: JsonObject) {
  const { checks } = verifyRecord(record, {
    ...(request ? { request } : {}),
    decodeAttestation: decodeAttestationPayload,
  })
  return checks.filter(({ outcome }) => outcome === 'failed')
}

it('a verified completion comes with proof that holds for what the caller sent and got', async () => {
  const reply = await postChat(gateway, CHAT_REQUEST)
  expect(reply.status).toBe(200)
  const completion = parseExactJson(new Uint8Array(await reply.arrayBuffer())) as JsonObject
  expect(completion).toMatchObject({
    object: 'chat.completion',
    choices: [{ finish_reason: 'stop' }],
  })
  expect(completion.tx_hash).toMatch(/^0x[0-9a-f]{64}$/)
  expect(failedChecks(completion, CHAT_REQUEST)).toEqual([])
  const broken = { ...completion, choices: [] }
  expect(failedChecks(broken, CHAT_REQUEST).length).toBeGreaterThan(0)
})

it("a verified completion sends the enclave the caller's exact bytes, and who called", async () => {
  const body = `{ "messages":[{"content":"\\u0041 é 😀 \\u0000","role":"user"}],\n"model":"demo/echo", "x": 1.50e1 }`
  await postChat(gateway, body, { headers: { 'x-request-id': 'my-own-id' } })
  expect(newest()?.body.toString()).toBe(body)
  expect(JSON.parse(newest()?.call.context ?? '')).toEqual({
    account_id: gateway.accountId,
    request_id: 'my-own-id',
  })
})

it('a verified completion gives the response exactly as it was hashed', async () => {
  gateway.enclave.setScript(
    answerWhole({
      z: 1e-7,
      a: '\u0000\u2028😀"\\',
      system_fingerprint: null,
      nested: { b: [], a: {} },
    }),
  )
  const text = await (await postChat(gateway, CHAT_REQUEST)).text()
  const { receipt } = JSON.parse(text)
  const response = `${text.slice(0, text.indexOf(',"hash":"'))}}`
  expect(createHash('sha256').update(response).digest('hex')).toBe(receipt.response_hash)
})

it('a verified completion takes a body of exactly the limit', async () => {
  const frame = JSON.stringify({ ...CHAT_REQUEST, user: '' })
  const body = frame.replace('"user":""', `"user":"${'x'.repeat(BODY_BYTES_MAX - frame.length)}"`)
  expect((await postChat(gateway, body)).status).toBe(200)
  expect(newest()?.body.length).toBe(BODY_BYTES_MAX)
})

it.each([
  [{ 'fine-tune-authorization': 'Bearer sk-mine' }, 'gpt-4o', 'openai', 'sk-mine'],
  [{ 'fine-tune-authorization': 'sk-mine' }, 'ft:gpt-4o:me', 'openai', 'sk-mine'],
  [{}, 'gpt-4o', 'openai', 'sk-operator-key-1'],
  [{}, 'demo/echo', 'demo', null],
  [{ 'fine-tune-authorization': 'sk-mine' }, 'demo/echo', 'demo', 'sk-mine'],
])(
  'a call with the headers %j for the model %s goes to %s with the credential %s',
  async (headers, model, provider, credential) => {
    expect((await postChat(gateway, { ...CHAT_REQUEST, model }, { headers })).status).toBe(200)
    expect(newest()?.call).toMatchObject({ provider, credential })
  },
)

it.each([
  [{ authorization: '' }, 401, 'invalid_credentials'],
  [{ authorization: 'Bearer' }, 401, 'invalid_credentials'],
  [{ authorization: 'Basic dTpw' }, 401, 'invalid_credentials'],
  [{ authorization: `Bearer afd_aaaaaaaaaaaaaaaa_${'A'.repeat(43)}` }, 401, 'invalid_credentials'],
  [{ 'content-type': 'text/plain' }, 415, 'unsupported_media_type'],
  [{ 'content-type': 'application/json; charset=latin1' }, 415, 'unsupported_media_type'],
  [{ 'content-type': 'application/jsonp' }, 415, 'unsupported_media_type'],
  [{ 'content-encoding': 'gzip' }, 415, 'unsupported_media_type'],
  [{ 'fine-tune-authorization': 'two words' }, 422, ['header.fine-tune-authorization']],
])('a call with the headers %j is refused with %i %s', async (headers, status, code) => {
  expect(await outcomeOf(await postChat(gateway, CHAT_REQUEST, { headers }))).toEqual([
    status,
    code,
  ])
})

it('a call without a key is told so, with the challenge', async () => {
  const reply = await fetch(gateway.url + VERIFIED_PATH, { method: 'POST', body: '{}' })
  expect(reply.headers.get('www-authenticate')).toBe('Bearer')
  expect(await outcomeOf(reply)).toEqual([401, 'authorization_missing'])
})

it('a revoked key is refused soon', async () => {
  const { text, key } = await gateway.keys.create({ accountName: 'tests', name: 'short' })
  const headers = { authorization: `Bearer ${text}` }
  expect((await postChat(gateway, CHAT_REQUEST, { headers })).status).toBe(200)
  await gateway.keys.revoke(key.id)
  await expect
    .poll(async () => outcomeOf(await postChat(gateway, CHAT_REQUEST, { headers })))
    .toEqual([401, 'invalid_credentials'])
})

it.each([
  ['', ['body']],
  ['[]', ['body']],
  ['{"a":', ['body.5']],
  [{ messages: [], model: 5 }, ['body.messages', 'body.model']],
  ['{"model":"m","model":"n"}', ['body.model']],
  [{ ...CHAT_REQUEST, temperature: 3, top_logprobs: 5 }, ['body.temperature', 'body.top_logprobs']],
])('a body of %j is told where: %j', async (body, locs) => {
  const before = gateway.enclave.calls.length
  expect(await outcomeOf(await postChat(gateway, body))).toEqual([422, locs])
  expect(gateway.enclave.calls).toHaveLength(before)
})

it('a body over the limit is refused, declared or not, and its sender gets the answer', async () => {
  const body = JSON.stringify({ ...CHAT_REQUEST, user: 'x'.repeat(BODY_BYTES_MAX) })
  expect(await outcomeOf(await postChat(gateway, body))).toEqual([413, 'payload_too_large'])
  const chunked = { body: new Blob([body]).stream(), duplex: 'half' } as RequestInit as never
  expect(await outcomeOf(await postChat(gateway, '', chunked))).toEqual([413, 'payload_too_large'])
})

it("a provider's own refusal leaves no record", async () => {
  const { size } = gateway.committer.status()
  gateway.enclave.setScript(
    answerFault({
      status: 400,
      code: 'provider_refused',
      message: 'too long',
      provider_code: 'context_length',
    }),
  )
  const reply = await postChat(gateway, CHAT_REQUEST)
  expect(await reply.json()).toEqual({
    response: 'NOK',
    error: {
      status_code: 400,
      code: 'provider_refused',
      message: 'too long',
      type: 'invalid_request_error',
      param: null,
      provider_code: 'context_length',
    },
  })
  expect(gateway.committer.status().size).toBe(size)
})

it('a changed table of providers is asked for anew when a credential is for another provider', async () => {
  await postChat(gateway, CHAT_REQUEST)
  gateway.enclave.setProviders([
    { name: 'new', origin: 'http://127.0.0.1:9', path: '/', models: ['*'] },
  ])
  const serve = answerWhole({})
  gateway.enclave.setScript((arrived) => {
    const isStale = arrived.call.provider !== 'new'
    const fault = { status: 409, code: 'provider_mismatch', message: 'm' } as const
    return isStale ? answerFault(fault)(arrived) : serve(arrived)
  })
  expect((await postChat(gateway, CHAT_REQUEST)).status).toBe(200)
  expect(newest()?.call.provider).toBe('new')
})

it('a caller who leaves before the answer ends the call to the enclave at once', async () => {
  const arrived = Promise.withResolvers<void>()
  gateway.enclave.setScript(() => arrived.resolve())
  const abort = new AbortController()
  const reply = postChat(gateway, CHAT_REQUEST, { signal: abort.signal })
  reply.catch(() => {})
  await arrived.promise
  const startedAtMs = performance.now()
  abort.abort()
  await newest()?.left
  expect(performance.now() - startedAtMs).toBeLessThan(AT_ONCE_MS)
})

it('a caller who leaves in mid-upload leaves nothing behind', async () => {
  const before = gateway.enclave.calls.length
  const connection = await connectRaw(gateway.port)
  connection.write(headOf(['expect: 100-continue', 'content-length: 1000']))
  await connection.until(/100 Continue/)
  connection.write('{"model"')
  connection.socket.destroy()
  await expect.poll(() => gateway.logLines.at(-1)).toContain('"isWhole":false')
  expect(gateway.enclave.calls).toHaveLength(before)
  expect(gateway.logLines.at(-1)).not.toContain('unexpected')
})

it('an enclave that is gone is said to be unavailable, and nothing is logged of the call', async () => {
  await gateway.enclave.stop()
  const reply = await postChat(gateway, { ...CHAT_REQUEST, user: 'planted marmalade' })
  expect(reply.headers.get('retry-after')).toBe('1')
  expect(await outcomeOf(reply)).toEqual([503, 'enclave_unavailable'])
  const logged = gateway.logLines.join()
  expect(logged).toContain('enclave call failed')
  expect(logged).not.toContain('marmalade')
  expect(logged).not.toContain(gateway.key)
})

function headOf(headers: readonly string[]): string {
  const own = ['host: x', `authorization: Bearer ${gateway.key}`, 'content-type: application/json']
  return `${[`POST ${VERIFIED_PATH} HTTP/1.1`, ...own, ...headers].join('\r\n')}\r\n\r\n`
}
