import { expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { FAR_OFF_MS } from '../../../support/at-once.ts'

/** A proxy whose gateway answers when `release` is called, or when the proxy leaves the call. */
async function openStoppingProxy(drainMs?: number) {
  let release: () => void = () => undefined
  let begin: () => void = () => undefined
  const begun = new Promise<void>((resolve) => {
    begin = resolve
  })
  const affidavit = {
    baseURL: 'http://127.0.0.1:9/v1/verified',
    proofs: { of: () => undefined },
    fetch: (_: string, { signal }: { readonly signal: AbortSignal }) => {
      begin()
      return new Promise<Response>((resolve, reject) => {
        release = () => resolve(Response.json({ id: 'late' }))
        signal.addEventListener('abort', () => reject(signal.reason))
      })
    },
  } as unknown as Affidavit
  const proxy = await serveProxy({
    affidavit,
    port: 0,
    onCall: () => undefined,
    ...(drainMs === undefined ? {} : { drainMs }),
  })
  const asked = fetch(`${proxy.baseURL}/chat/completions`, {
    method: 'POST',
    body: '{"model":"m"}',
  })
  await begun
  return { proxy, asked, release: () => release() }
}

it('a proxy that stops gives the answers of calls that were sent', async () => {
  const { proxy, asked, release } = await openStoppingProxy(FAR_OFF_MS)
  const closed = proxy.close()
  setTimeout(release, 100)
  const answer = await asked
  expect(answer.status).toBe(200)
  expect(await answer.json()).toEqual({ id: 'late' })
  await closed
})

it('a call that outlasts the stop of its proxy is not to be repeated', async () => {
  const { proxy, asked } = await openStoppingProxy(50)
  const closed = proxy.close()
  const answer = await asked
  expect(answer.headers.get('x-should-retry')).toBe('false')
  expect(await answer.json()).toMatchObject({
    error: { code: 'stopping', message: expect.stringContaining('The call was made') },
  })
  await closed
})
