import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CONNECTION_REPLY_BYTES_MAX } from '../../../src/enclaves/checked-connector.ts'
import { createEnclaveClient, type EnclaveClient } from '../../../src/enclaves/enclave-client.ts'
import { type ScriptedEnclave, startScriptedEnclave } from '../../support/scripted-enclave.ts'

const CALL = { context: '', provider: 'demo', credential: null }
const BODY = Buffer.from('{"model":"demo/echo","messages":[]}')
let folder = ''
let clients: EnclaveClient[] = []
let enclaves: ScriptedEnclave[] = []
let servers: Server[] = []

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'affidavit-connector-'))
})
afterEach(async () => {
  await Promise.all(clients.map((client) => client.close()))
  await Promise.all(enclaves.map((enclave) => enclave.stop().catch(() => undefined)))
  for (const server of servers) server.close()
  await rm(folder, { recursive: true, force: true })
  clients = []
  enclaves = []
  servers = []
})

const socketPath = () => join(folder, 'enclave.sock')

async function startEnclave(): Promise<ScriptedEnclave> {
  const enclave = await startScriptedEnclave({ socketPath: socketPath() })
  enclaves.push(enclave)
  return enclave
}

function open(expected: () => string): EnclaveClient {
  const isExpected = ({ notary }: { readonly notary: string }) => notary === expected()
  const client = createEnclaveClient({ socketPath: socketPath(), callsMax: 4, isExpected, now: Date.now })
  clients.push(client)
  return client
}

const complete = (client: EnclaveClient) => client.complete(CALL, BODY, new AbortController().signal)

describe('a connection for completions', () => {
  it('is used for the enclave that is expected, and asked about once', async () => {
    const enclave = await startEnclave()
    const client = open(() => enclave.notary)
    for (let call = 0; call < 10; call++) expect((await complete(client)).kind).toBe('sealed')
    expect(enclave.calls).toHaveLength(10)
    // A connection may still be busy with the call before.
    expect(enclave.countIdentityCalls()).toBeLessThanOrEqual(4)
  })

  it('is given up for another enclave, which is sent nothing', async () => {
    const enclave = await startEnclave()
    const client = open(() => `0x${'00'.repeat(20)}`)
    await expect(complete(client)).rejects.toMatchObject({ code: 'unavailable', wasSent: false })
    expect(enclave.calls).toEqual([])
  })

  it('is not used for an enclave that took the place of the one that was checked', async () => {
    const before = await startEnclave()
    const client = open(() => before.notary)
    expect((await complete(client)).kind).toBe('sealed')
    await before.stop()
    const after = await startEnclave()
    await expect(complete(client)).rejects.toMatchObject({ name: 'EnclaveError' })
    await expect(complete(client)).rejects.toMatchObject({ code: 'unavailable', wasSent: false })
    expect(after.calls).toEqual([])
  })

  it('says that nothing was sent when nobody listens', async () => {
    await expect(complete(open(() => ''))).rejects.toMatchObject({ code: 'unavailable', wasSent: false })
  })

  it.each([
    ['closes it', 'unavailable', null],
    ['speaks no HTTP', 'protocol', 'SSH-2.0-x\r\n\r\n'],
    ['gives no length', 'protocol', 'HTTP/1.1 200 OK\r\n\r\n{}'],
    ['gives no JSON', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{'],
    ['gives no identity', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}'],
    ['gives more than was asked', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP'],
    ['gives a fault', 'refused', faultReply()],
    ['gives more than the limit', 'reply_too_large', 'x'.repeat(CONNECTION_REPLY_BYTES_MAX + 1)],
  ])('fails when what listens %s', async (_, code, reply) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined)
      if (reply === null) socket.destroy()
      else socket.once('data', () => socket.write(reply))
    })
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(socketPath(), resolve))
    await expect(complete(open(() => ''))).rejects.toMatchObject({ code, wasSent: false })
  })

  it('fails when what listens is silent', async () => {
    const server = createServer((socket) => socket.on('error', () => undefined))
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(socketPath(), resolve))
    await expect(complete(open(() => ''))).rejects.toMatchObject({ code: 'timeout', wasSent: false })
  })
})

function faultReply(): string {
  const body = JSON.stringify({ status: 503, code: 'not_ready', message: 'no document' })
  return `HTTP/1.1 503 No\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}
