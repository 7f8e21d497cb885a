import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import { createBodyReader } from '#src/cli/proxy/request-bodies.ts'

const MIB = 1024 * 1024
const { signal: never } = new AbortController()

const posted = (body: Uint8Array, coding = 'identity') =>
  Object.assign(Readable.from([body]), {
    method: 'POST',
    headers: { 'content-encoding': coding },
  }) as unknown as IncomingMessage

it('a coded body whose caller left counts until its turn, because its bytes stay in memory', async () => {
  const read = createBodyReader({ bytesMax: 66 * MIB, silenceMs: 60_000 })
  const cut = gzipSync(Buffer.alloc(16 * MIB)).subarray(0, -8)
  const before = [1, 2, 3].map(() => read(posted(cut, 'gzip'), never).catch(String))
  const leaving = new AbortController()
  const left = read(posted(randomBytes(1.5 * MIB), 'gzip'), leaving.signal).catch(String)
  const plain = Buffer.alloc(MIB)
  const statusOfPlain = () =>
    read(posted(plain), never).then(
      ({ release }) => {
        release()
        return 200
      },
      ({ status }) => status,
    )
  await expect.poll(statusOfPlain, { interval: 1 }).toBe(503)
  leaving.abort('left')
  await setImmediate()
  expect(await statusOfPlain()).toBe(503)
  await Promise.all(before)
  expect(await left).toBe('left')
  expect(await statusOfPlain()).toBe(200)
})
