import { expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'

/** A proxy whose calls all get one event of a stream that then fails. */
async function openProxy(data: string) {
  const calls: ProxiedCall[] = []
  const event = new TextEncoder().encode(`event: response.created\ndata: ${data}\n\n`)
  const fetch = () => {
    const parts = [() => event, () => Promise.reject(new Error('the stream broke'))]
    const body = new ReadableStream({
      pull: async (controller) => controller.enqueue(await parts.shift()?.()),
    })
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  }
  const affidavit = {
    baseURL: 'http://127.0.0.1:9/v1/verified',
    fetch: async () => fetch(),
  } as unknown as Affidavit
  const proxy = await serveProxy({ affidavit, port: 0, onCall: (call) => calls.push(call) })
  const ask = async () => {
    const body = '{"model":"m","stream":true}'
    const answer = await globalThis.fetch(`${proxy.baseURL}/responses`, { method: 'POST', body })
    return await answer.text()
  }
  return { proxy, calls, ask }
}

it('a stream that fails ends with its response, whatever characters its first event has', async () => {
  const response = { id: 'r', instructions: 'one\u2028two\u2029three' }
  const { proxy, ask } = await openProxy(JSON.stringify({ type: 'response.created', response }))
  const [, last = ''] = (await ask()).split('event: response.failed\ndata: ')
  expect(JSON.parse(last)).toMatchObject({
    sequence_number: 1,
    response: { ...response, status: 'failed', error: { code: 'unreachable' } },
  })
  await proxy.close()
})

it('a call that cannot be answered with an error ends alone', async () => {
  const { proxy, calls, ask } = await openProxy('{')
  for (let call = 0; call < 2; call++) await expect(ask()).rejects.toThrow()
  expect(calls.map(({ verdict, detail }) => [verdict, detail])).toEqual([
    ['error', 'unreachable'],
    ['error', 'unreachable'],
  ])
  await proxy.close()
})
