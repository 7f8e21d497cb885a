import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { CallFault } from '#enclave/call-fault.ts'
import { createTransport, type Transport } from '#enclave/providers/transport.ts'
import {
  createAuthority,
  type TestAuthority,
  type TestCertificate,
} from '../../support/certificates.ts'

let authority: TestAuthority
let certificates: readonly [TestCertificate, TestCertificate]
/** The digests of the keys of both certificates. */
let keys: readonly [string, string]
let server: Server
let transport: Transport
let origin = ''
/** The bytes that the provider received on each connection, in the order of the connections. */
let received: string[]
let sockets: TLSSocket[]
/** If false, the provider does not answer. */
let answers: boolean

beforeAll(async () => {
  authority = await createAuthority()
  certificates = [
    await authority.issue({ hosts: ['127.0.0.1'] }),
    await authority.issue({ hosts: ['127.0.0.1'] }),
  ]
  keys = [keyOf(certificates[0]), keyOf(certificates[1])]
})

beforeEach(async () => {
  received = []
  sockets = []
  answers = true
  const [{ certificate: cert, key }] = certificates
  server = createServer({ cert, key }, (socket) => {
    const place = received.push('') - 1
    sockets.push(socket)
    socket.on('error', () => undefined)
    socket.on('data', (part) => {
      received[place] += part
      if (answers && received[place]?.endsWith('{}'))
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  transport = createTransport({ cas: authority.certificate, connectTimeoutMs: 2_000 })
})

afterEach(() => {
  transport.close()
  for (const socket of sockets) socket.destroy()
  server.close()
})

function keyOf({ certificate }: TestCertificate): string {
  const spki = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(spki).digest('hex')
}

/** Gives the provider the second key, for connections from now on. */
function changeKey(): void {
  const [, { certificate: cert, key }] = certificates
  server.setSecureContext({ cert, key })
}

/** Makes a call. Returns the key of the answer, or the code of the fault. */
async function ask(...accepted: readonly (readonly string[] | undefined)[]): Promise<unknown> {
  const provider = { name: 'p', origin, path: '/chat', models: [] }
  try {
    const { body, tls } = await transport.send({
      provider,
      endpoint: provider,
      headers: {},
      keys: accepted,
      credential: 'secret',
      body: Buffer.from('{}'),
      isStream: false,
      cancel: new AbortController(),
      onConnected: () => undefined,
    })
    body.resume()
    await once(body, 'end')
    return tls?.spki_sha256
  } catch (error) {
    if (error instanceof CallFault) return error.fault.code
    throw error
  }
}

it('a provider with an accepted key is asked', async () => {
  expect(await ask([keys[1], keys[0]])).toBe(keys[0])
  expect(await ask(undefined, undefined)).toBe(keys[0])
  expect(received.join('')).toContain('Bearer secret')
})

it('a provider with another key gets no byte', async () => {
  expect(await ask([keys[1]])).toBe('provider_key_mismatch')
  expect(received.join('')).toBe('')
})

it('both the table and the call must accept the key', async () => {
  expect(await ask([keys[0]], [keys[1]])).toBe('provider_key_mismatch')
  expect(await ask([keys[1]], [keys[0]])).toBe('provider_key_mismatch')
  expect(received.join('')).toBe('')
  expect(await ask([keys[0]], [keys[0], keys[1]])).toBe(keys[0])
})

it('a kept connection with the former key gets no byte, and a new connection is used', async () => {
  expect(await ask([keys[0]])).toBe(keys[0])
  const [before] = received
  changeKey()
  expect(await ask([keys[1]])).toBe(keys[1])
  expect(received).toHaveLength(2)
  expect(received[0]).toBe(before)
})

it('a provider that changed its key gets no byte on a reconnect', async () => {
  expect(await ask([keys[0]])).toBe(keys[0])
  changeKey()
  sockets[0]?.destroy()
  // The broken connection is used until its end has arrived.
  await expect.poll(() => ask([keys[0]])).toBe('provider_key_mismatch')
  expect(received.slice(1).join('')).toBe('')
})

it('a provider that changed its key gets no byte on a second connection of the pool', async () => {
  answers = false
  const first = ask([keys[0]])
  await expect.poll(() => received[0]).toContain('{}')
  changeKey()
  expect(await ask([keys[0]])).toBe('provider_key_mismatch')
  expect(received.slice(1).join('')).toBe('')
  sockets[0]?.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}')
  expect(await first).toBe(keys[0])
})

it('a provider over plain http has no key, so a call that demands one is refused', async () => {
  origin = origin.replace('https:', 'http:')
  expect(await ask([keys[0]])).toBe('provider_key_mismatch')
  expect(received.join('')).toBe('')
})
