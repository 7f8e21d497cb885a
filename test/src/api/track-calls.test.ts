import { expect, it } from 'vitest'
import { familyOf } from '#src/observability/model-family.ts'
import { CHAT_REQUEST, getPath, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { answerFault, answerWhole, namedEvent } from '../../support/scripted-enclave.ts'

const gateway = await useGateway()

type Line = Readonly<Record<string, unknown>>

/** The log line of a call, which is made with this id. */
async function lineOf(
  requestId: string,
  makeCall: (headers: { 'x-request-id': string }) => Promise<unknown>,
) {
  await makeCall({ 'x-request-id': requestId })
  const read = (): Line | undefined =>
    gateway.logLines
      .map((line): Line => JSON.parse(line))
      .find((line) => line.requestId === requestId && line.msg === 'request')
  await expect.poll(read).toBeDefined()
  return read() ?? {}
}

const post = (body: unknown) => (headers: Record<string, string>) =>
  postChat(gateway, body, { headers })

it('the log line of a call has the code of the error that the caller was told, and not its message', async () => {
  const line = await lineOf('no-key', (headers) => fetch(gateway.url + VERIFIED_PATH, { headers }))
  expect(line).toMatchObject({ level: 'info', status: 401, error: 'authorization_missing' })
  const message = 'the provider says marmalade'
  gateway.enclave.setScript(answerFault({ status: 409, code: 'provider_refused', message }))
  const refused = await lineOf('refused', post(CHAT_REQUEST))
  expect(refused).toMatchObject({ level: 'info', status: 409, error: 'provider_refused' })
  expect(gateway.logLines.join()).not.toContain('marmalade')
})

it('the log line of a call has the model, its provider with the time it took, the tokens, and who called', async () => {
  gateway.enclave.setScript(answerWhole({ usage: { prompt_tokens: 3, completion_tokens: 4 } }))
  const line = await lineOf('measured', (headers) =>
    postChat(gateway, CHAT_REQUEST, { headers: { ...headers, 'x-forwarded-for': '6.6.6.6' } }),
  )
  expect(line).toMatchObject({
    model: CHAT_REQUEST.model,
    client: '127.0.0.1',
    inputTokens: 3,
    outputTokens: 4,
    provider: expect.any(String),
    providerMs: expect.any(Number),
  })
  expect(line).not.toHaveProperty('firstTokenMs')
})

it('the log line of a stream has the time to its first token', async () => {
  gateway.enclave.setScript(({ response, seal }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`data: {"choices":[]}\n\n${namedEvent('sealed', seal({ choices: [] }))}`)
  })
  const stream = post({ ...CHAT_REQUEST, stream: true })
  const line = await lineOf('streamed', async (headers) => (await stream(headers)).text())
  expect(line).toMatchObject({ status: 200, firstTokenMs: expect.any(Number) })
  expect(line.firstTokenMs).toBeLessThanOrEqual(line.durationMs as number)
})

it.each(['tell me of marmalade', 'm'.repeat(200), 'x"},{"level":"error'])(
  'the log line of a call has no model that may be any text, as %j',
  async (model) => {
    const line = await lineOf(`model-${model.length}`, post({ ...CHAT_REQUEST, model }))
    expect(line).toHaveProperty('status')
    expect(line).not.toHaveProperty('model')
  },
)

it('the log line of a call has the family alone of a model that was not served', async () => {
  const fault = { status: 404, code: 'provider_refused', message: 'no such model' } as const
  gateway.enclave.setScript(answerFault(fault))
  const line = await lineOf('unserved', post(CHAT_REQUEST))
  expect(line).toMatchObject({ status: 404, modelFamily: familyOf(CHAT_REQUEST.model) })
  expect(line).not.toHaveProperty('model')
})

it('the log line of a call is a warning from status 500 up', async () => {
  gateway.enclave.setScript(answerFault({ status: 504, code: 'provider_timeout', message: 'late' }))
  const line = await lineOf('late', post(CHAT_REQUEST))
  expect(line).toMatchObject({ level: 'warn', status: 504, error: 'provider_timeout' })
})

it('the log line of a call is a warning when the error event of a stream says as much', async () => {
  gateway.enclave.setScript(({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const fault = { status: 502, code: 'provider_error', message: 'The provider broke off.' }
    response.end(`data: {"choices":[]}\n\n${namedEvent('fault', fault)}`)
  })
  const stream = post({ ...CHAT_REQUEST, stream: true })
  const line = await lineOf('broke-off', async (headers) => (await stream(headers)).text())
  expect(line).toMatchObject({ level: 'warn', status: 200, error: 'provider_error' })
})

it("the log line of a call whose caller left before the answer has status 499, and not for a route's own 404", async () => {
  const arrived = Promise.withResolvers<void>()
  gateway.enclave.setScript(async ({ left }) => {
    arrived.resolve()
    await left
  })
  const abort = new AbortController()
  const line = await lineOf('left', async (headers) => {
    const reply = postChat(gateway, CHAT_REQUEST, { headers, signal: abort.signal }).catch(
      () => null,
    )
    await arrived.promise
    abort.abort()
    await reply
  })
  expect(line).toMatchObject({ level: 'info', status: 499, isWhole: false })
  expect(line).not.toHaveProperty('error')
  const absent = await lineOf('absent', (headers) =>
    getPath(gateway, `${VERIFIED_PATH}/${'ab'.repeat(32)}`, headers),
  )
  expect(absent).toMatchObject({ status: 404, isWhole: true })
})

it('the log line of a probe that failed is a warning, with its code', async () => {
  await gateway.committer.stop()
  await expect
    .poll(async () => (await getPath(gateway, '/readyz')).status, { interval: 200 })
    .toBe(503)
  const probe = (headers: Record<string, string>) => fetch(`${gateway.url}/readyz`, { headers })
  expect(await lineOf('probe', probe)).toMatchObject({
    level: 'warn',
    status: 503,
    error: 'not_ready',
  })
})
