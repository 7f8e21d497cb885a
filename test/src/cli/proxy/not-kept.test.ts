import { expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { LostCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'

it.each([
  ['/chat/completions', 502],
  ['/responses', 400],
  ['/messages', 400],
])('an answer at %s whose proof could not be kept is refused for good', async (path, status) => {
  const verdicts: unknown[] = []
  const affidavit = {
    baseURL: 'http://127.0.0.1:9/v1/verified',
    fetch: () => Promise.reject(new LostCall('not_kept', 'no space left')),
  } as unknown as Affidavit
  const proxy = await serveProxy({
    affidavit,
    port: 0,
    onCall: ({ verdict, detail }) => verdicts.push([verdict, detail]),
  })
  const answer = await fetch(`${proxy.baseURL}${path}`, { method: 'POST', body: '{"model":"m"}' })
  expect(answer.status).toBe(status)
  expect(answer.headers.get('x-should-retry')).toBe('false')
  expect(await answer.json()).toMatchObject({
    error: { code: 'not_kept', message: 'no space left' },
  })
  expect(verdicts).toEqual([['refused', 'not_kept']])
  await proxy.close()
})
