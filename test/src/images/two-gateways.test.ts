import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { readGatewayConfig } from '#src/config.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { refuse, S3_KEY, type S3Server, startS3Server } from '../../support/s3-server.ts'

const demo = createDemoServer({ delayMs: 0, now: Date.now })
let server: S3Server
let gateways: readonly TestGateway[] = []
beforeAll(async () => {
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  server = await startS3Server()
  const { upstream } = readGatewayConfig({
    IMAGES_URL: `http://127.0.0.1:${(demo.address() as AddressInfo).port}/v1`,
    IMAGES_MODELS: 'demo/image',
    IMAGE_STORE_S3_URL: `${server.origin}/images`,
    IMAGE_STORE_S3_REGION: S3_KEY.region,
    IMAGE_STORE_S3_ACCESS_KEY_ID: S3_KEY.accessKeyId,
    IMAGE_STORE_S3_SECRET_ACCESS_KEY: S3_KEY.secretAccessKey,
  })
  gateways = await Promise.all([1, 2].map(() => startGateway({ settings: { upstream } })))
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await Promise.all(gateways.map((gateway) => gateway.stop()))
  await server.stop()
  demo.close()
}, GATEWAY_HOOK_TIMEOUT_MS)

it('an image that one gateway kept is given by the other, while the bucket can be used', async () => {
  const [one, other] = gateways as readonly [TestGateway, TestGateway]
  const made = await fetch(`${one.url}/v1/images/generations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${one.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo/image', prompt: 'A cat', size: '256x256' }),
  })
  const { data } = (await made.json()) as { readonly data: readonly { readonly url: string }[] }
  const { pathname } = new URL(data[0]?.url ?? '')
  const image = await fetch(other.url + pathname)
  expect([image.status, image.headers.get('content-type')]).toEqual([200, 'image/png'])
  const [content] = [...server.objects].filter(([key]) => key.includes('/content-'))
  expect(Buffer.from(await image.arrayBuffer()).equals(content?.[1].bytes ?? Buffer.of())).toBe(
    true,
  )
  const log = () => other.logLines.join('\n')
  expect(log()).not.toContain(pathname)
  server.script = (request, response) => {
    request.resume()
    refuse(response, 403, 'AccessDenied')
    return true
  }
  const refused = await fetch(other.url + pathname)
  expect([refused.status, await refused.json()]).toMatchObject([
    503,
    { error: { code: 'not_ready' } },
  ])
  await expect.poll(log).toContain('AccessDenied')
  expect(log()).not.toContain(S3_KEY.secretAccessKey)
})
