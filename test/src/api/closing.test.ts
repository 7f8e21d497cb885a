import { expect, it } from 'vitest'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, outcomeOf, postChat } from '../../support/calls.ts'
import { startGateway, useGateway } from '../../support/gateway.ts'
import { connectRaw } from '../../support/raw-http.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

const gateway = await useGateway()

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
