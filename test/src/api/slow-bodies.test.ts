import { expect, it } from 'vitest'
import { ENCAPSULATED_KEY_HEADER } from '#attestation/ehbp.ts'
import { CHAT_REQUEST, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { connectRaw, type RawConnection } from '../../support/raw-http.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

const PLACES = 32
const RATE = { graceMs: 1_500, bytesPerSecond: 1_000 }

const gateway = await useGateway({ settings: { verifiedCallsMax: PLACES }, bodyRate: RATE })
gateway.enclave.setScript(answerWhole({}))
const { text } = await gateway.keys.create({ accountName: 'somebody else', name: 'k' })
const other = { url: gateway.url, key: text }

/** A call whose head is there, and says that a body follows. */
async function begin(path: string, headers: Readonly<Record<string, string>> = {}) {
  const connection = await connectRaw(Number(new URL(gateway.url).port))
  const lines = Object.entries({
    host: 'gateway',
    authorization: `Bearer ${gateway.key}`,
    'content-type': 'application/json',
    'content-length': '5000',
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  connection.write(`POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n`)
  return connection
}

const end = (connections: readonly RawConnection[]) => {
  for (const { socket } of connections) socket.destroy()
}

it.each([
  ['verified', VERIFIED_PATH, {}],
  ['encrypted', VERIFIED_PATH, { [ENCAPSULATED_KEY_HEADER]: 'ab'.repeat(32) }],
])('%s calls of one account that send nothing keep nobody else out', async (_, path, headers) => {
  const silent = await Promise.all(Array.from({ length: PLACES + 8 }, () => begin(path, headers)))
  try {
    await expect.poll(() => silent.some((one) => one.received().includes(' 503 '))).toBe(true)
    expect((await postChat(other, CHAT_REQUEST)).status).toBe(200)
  } finally {
    end(silent)
  }
})

it.each([
  ['/v1/verified/chat/completions', {}],
  ['/v1/chat/completions', {}],
  ['/v1/embeddings', {}],
  ['/v1/images/generations', {}],
  ['/v1/images/edits', { 'content-type': 'multipart/form-data; boundary=x' }],
  ['/v1/dashboard/keys', {}],
])(
  'a call of %s whose body does not come ends with 408 and its connection',
  async (path, headers) => {
    const connection = await begin(path, headers)
    const text = await connection.closed
    expect(text).toMatch(/^HTTP\/1\.1 408 /)
    expect(text).toContain('"code":"body_too_slow"')
    expect(text).toMatch(/\r\nconnection: close\r\n/i)
  },
)

it('a body that trickles below the least rate ends with 408', async () => {
  const connection = await begin(VERIFIED_PATH)
  const trickle = setInterval(() => connection.write(' '), 20)
  try {
    expect(await connection.closed).toMatch(/^HTTP\/1\.1 408 /)
  } finally {
    clearInterval(trickle)
  }
})

it('a body that comes slower than the grace, but at the least rate, is read', async () => {
  const body = JSON.stringify({ ...CHAT_REQUEST, user: 'x'.repeat(20_000) })
  const connection = await begin(VERIFIED_PATH, { 'content-length': String(body.length) })
  const half = Math.floor(body.length / 2)
  connection.write(body.slice(0, half))
  // Time passes: what has arrived pays for it.
  await new Promise((resolve) => setTimeout(resolve, RATE.graceMs + 500))
  connection.write(body.slice(half))
  expect(await connection.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 200 /)
  end([connection])
})
