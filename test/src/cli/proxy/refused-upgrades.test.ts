import { connect } from 'node:net'
import { expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import { serveProxy } from '#src/cli/proxy/serve-proxy.ts'

const AFFIDAVIT = {
  baseURL: 'http://127.0.0.1:9/v1/verified',
  fetch: () => Promise.reject(new Error('expected no call')),
} as unknown as Affidavit

it('a client that resets its upgrade, or keeps it half open, neither ends the proxy nor keeps it open', async () => {
  const proxy = await serveProxy({ affidavit: AFFIDAVIT, port: 0, onCall: () => undefined })
  const port = Number(new URL(proxy.baseURL).port)
  const upgrade =
    `GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
    'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
  for (let round = 0; round < 20; round++)
    await new Promise<void>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.write(upgrade, () => {
          socket.resetAndDestroy()
          setImmediate(resolve)
        })
      })
    })
  const answer = await new Promise<string>((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    socket.once('data', (bytes) => resolve(bytes.toString()))
    socket.write(upgrade)
  })
  expect(answer).toMatch(/^HTTP\/1\.1 426 /)
  await proxy.close()
})
