import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { addressOf } from '#attestation/account.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { CONNECTION_REPLY_BYTES_MAX } from '#src/enclaves/connection-check.ts'
import { EnclaveClient, IDENTITY_AGE_MAX_MS } from '#src/enclaves/enclave-client.ts'
import {
  answerWhole,
  type CompletionScript,
  type ScriptedEnclave,
  send,
  startScriptedEnclave,
} from '../../support/scripted-enclave.ts'

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

async function start(
  script: CompletionScript = answerWhole({}),
  options: { callsMax?: number } = {},
) {
  const enclave = await startScriptedEnclave({ script })
  const clock = { nowMs: 0 }
  const client = clientOf(enclave, { ...options, now: () => clock.nowMs })
  ends.push(enclave.stop)
  return { enclave, client, clock }
}

function clientOf(
  enclave: Pick<ScriptedEnclave, 'socketPath'>,
  options: { callsMax?: number; now?: () => number } = {},
) {
  const client = new EnclaveClient({
    callsMax: 8,
    now: () => 0,
    ...options,
    socketPath: enclave.socketPath,
  })
  ends.push(() => client.close())
  return client
}

const call = { context: 'ctx "é"', provider: 'demo', credential: 'sk-1' }
const body = Buffer.from('{"model":"demo/echo" , "messages":[]}')

const live = () => new AbortController().signal

it("a completion hands over the caller's exact bytes, the context and the credential", async () => {
  const { enclave, client } = await start()
  const answer = await client.complete(call, body, live())
  expect(answer).toEqual({
    kind: 'sealed',
    notice: { notary: enclave.notary, index: 0, outcome: 'complete' },
  })
  expect(enclave.calls[0]?.call).toEqual(call)
  expect(enclave.calls[0]?.body.equals(body)).toBe(true)
})

it('a fault of a code that the client does not know is taken for an internal error', async () => {
  const { client } = await start(({ response }) =>
    send(response, { status: 500, code: 'new', message: 'm' }, 500),
  )
  const answer = await client.complete(call, body, live())
  expect(answer).toMatchObject({ kind: 'fault', fault: { code: 'internal_error' } })
})

it.each([
  ['before the answer', () => {}],
  [
    'within a stream',
    ({ response }) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('data: {"a":1}\n\n')
    },
  ],
] satisfies [string, CompletionScript][])(
  'the call of a completion ends at once when aborted %s',
  async (_, script) => {
    const { enclave, client } = await start(script)
    const abort = new AbortController()
    const reason = new Error('the caller left')
    const run = async () => {
      const answer = await client.complete(call, body, abort.signal)
      if (answer.kind === 'stream')
        for await (const event of answer.events) if (event.kind === 'chunks') abort.abort(reason)
    }
    const failure = expect(run()).rejects.toBe(reason)
    setTimeout(() => abort.abort(reason), 50)
    await failure
    await enclave.calls[0]?.left
  },
)

it('a call that is aborted already does not begin', async () => {
  const { enclave, client } = await start()
  const reason = new Error('gone')
  await expect(client.complete(call, body, AbortSignal.abort(reason))).rejects.toBe(reason)
  expect(enclave.calls).toHaveLength(0)
})

it.each([
  ['what is no JSON', 200, '{'],
  ['a notice of another form', 200, '{"index":1}'],
  ['a fault of another form', 500, '{"status":500}'],
  ['an empty answer', 500, ''],
])('the client of an enclave refuses %s', async (_, status, text) => {
  const { client } = await start(({ response }) => void response.writeHead(status).end(text))
  await expect(client.complete(call, body, live())).rejects.toMatchObject({ code: 'protocol' })
})

it('the client of an enclave refuses an answer of more than it would hold', async () => {
  const { client } = await start(({ response }) => void response.end(Buffer.alloc(2 ** 20 + 1)))
  await expect(client.complete(call, body, live())).rejects.toMatchObject({
    code: 'reply_too_large',
  })
})

it('an enclave that broke off, or does not listen, is said to be unavailable', async () => {
  const { enclave, client } = await start(({ response }) => void response.socket?.destroy())
  await expect(client.complete(call, body, live())).rejects.toMatchObject({ code: 'unavailable' })
  await enclave.stop()
  await expect(client.complete(call, body, live())).rejects.toMatchObject({ code: 'unavailable' })
  await expect(clientOf({ socketPath: '/nowhere/enclave.sock' }).identity()).rejects.toMatchObject({
    code: 'unavailable',
  })
})

it('the identity of an enclave is asked for once while it is young, whoever asks', async () => {
  const { enclave, client, clock } = await start()
  const [first] = await Promise.all([client.identity(), client.identity(), client.identity()])
  expect(first?.notary).toBe(enclave.notary)
  expect(enclave.countIdentityCalls()).toBe(1)
  clock.nowMs = IDENTITY_AGE_MAX_MS
  await client.identity()
  expect(enclave.countIdentityCalls()).toBe(2)
  client.forgetIdentity()
  await client.identity()
  expect(enclave.countIdentityCalls()).toBe(3)
})

it('the identity is that of the new enclave as soon as a call has met its restart', async () => {
  const { enclave, client } = await start(({ response }) => void response.socket?.destroy())
  await client.identity()
  await enclave.stop()
  await expect(client.complete(call, body, live())).rejects.toMatchObject({ code: 'unavailable' })
  const next = await startScriptedEnclave({ socketPath: enclave.socketPath })
  ends.push(next.stop)
  expect((await client.identity()).notary).toBe(next.notary)
})

it('the identity keeps every member of the boot configuration, which is hashed as a whole', async () => {
  const { enclave, client } = await start()
  enclave.setProviders([
    { name: 'x', origin: 'https://x.test', path: '/', models: ['*'], more: 1 } as never,
  ])
  expect((await client.identity()).boot_configuration.providers[0]).toMatchObject({ more: 1 })
})

it('a pull gives what was sealed, with a head, and acknowledges with the next', async () => {
  const { enclave, client } = await start()
  await client.complete(call, body, live())
  const reply = await client.pull({ from: 0, wait_ms: 1000, max: 10, known_document: null }, live())
  expect(reply).toMatchObject({
    notary: enclave.notary,
    head: { size: 1 },
    completions: [{ context: call.context }],
  })
  const next = await client.pull({ from: 1, wait_ms: 0, max: 10, known_document: null }, live())
  expect(next).toMatchObject({ head: null, completions: [] })
})

it('a pull waits in the enclave for as long as it is told, and no longer than its signal', async () => {
  const { client } = await start()
  const abort = new AbortController()
  const pull = client.pull(
    { from: 0, wait_ms: 60_000, max: 10, known_document: null },
    abort.signal,
  )
  setTimeout(() => abort.abort(new Error('stopped')), 30)
  await expect(pull).rejects.toThrow('stopped')
})

it('a pull is not kept waiting by completions that fill their connections', async () => {
  const { client } = await start(() => {}, { callsMax: 1 })
  const abort = new AbortController()
  const stuck = [1, 2, 3].map(() => client.complete(call, body, abort.signal).catch(() => {}))
  await client.pull({ from: 0, wait_ms: 0, max: 1, known_document: null }, live())
  abort.abort(new Error('over'))
  await Promise.all(stuck)
})

const hash = `0x${'b1'.repeat(32)}`

it('attestHead gives the size and root of all leaves, and a document over the hash', async () => {
  const { client, enclave } = await start()
  await client.complete(call, body, live())
  const { size, root, document } = await client.attestHead(hash, live())
  expect([size, root]).toEqual([1, expect.stringMatching(/^[0-9a-f]{64}$/)])
  const { nonce, publicKey } = decodeAttestationPayload(Buffer.from(document, 'base64'))
  expect(nonce).toEqual(new Uint8Array(32).fill(0xb1))
  expect(addressOf(publicKey ?? new Uint8Array())).toBe(enclave.notary)
})

it.each<[string, object]>([
  ['no size', { root: '00'.repeat(32), document: 'AAAA' }],
  ['a size below 0', { size: -1, root: '00'.repeat(32), document: 'AAAA' }],
  ['a root of another form', { size: 1, root: hash, document: 'AAAA' }],
  ['a document that is no base64', { size: 1, root: '00'.repeat(32), document: '*' }],
  ['an empty document', { size: 1, root: '00'.repeat(32), document: '' }],
])('attestHead refuses a reply with %s', async (_, reply) => {
  const at = await listen((socket) => socket.once('data', () => socket.write(replyOf(200, reply))))
  await expect(clientOf(at).attestHead(hash, live())).rejects.toMatchObject({ code: 'protocol' })
})

it('a connection for completions is used for the enclave that is expected, and asked about once', async () => {
  const { enclave } = await start()
  const client = clientExpecting(enclave, () => enclave.notary)
  for (let call = 0; call < 10; call++) expect((await complete(client)).kind).toBe('sealed')
  expect(enclave.calls).toHaveLength(10)
  // A connection may still be busy with the call before.
  expect(enclave.countIdentityCalls()).toBeLessThanOrEqual(4)
})

it('a connection is not used for an enclave that took the place of the one that was checked', async () => {
  const { enclave: before } = await start()
  const client = clientExpecting(before, () => before.notary)
  expect((await complete(client)).kind).toBe('sealed')
  await before.stop()
  const after = await startScriptedEnclave({ socketPath: before.socketPath })
  ends.push(after.stop)
  await expect(complete(client)).rejects.toMatchObject({ name: 'EnclaveError' })
  await expect(complete(client)).rejects.toMatchObject({ code: 'unavailable', wasSent: false })
  expect(after.calls).toEqual([])
})

it.each([
  ['closes it', 'unavailable', null],
  ['speaks no HTTP', 'protocol', 'SSH-2.0-x\r\n\r\n'],
  ['gives no length', 'protocol', 'HTTP/1.1 200 OK\r\n\r\n{}'],
  ['gives no JSON', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{'],
  ['gives no identity', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}'],
  ['gives more than was asked', 'protocol', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP'],
  ['gives a fault', 'refused', replyOf(503, { status: 503, code: 'not_ready', message: 'm' })],
  ['gives more than the limit', 'reply_too_large', 'x'.repeat(CONNECTION_REPLY_BYTES_MAX + 1)],
])('a connection for completions fails when what listens %s', async (_, code, reply) => {
  const at = await listen((socket) => {
    if (reply === null) socket.destroy()
    else socket.once('data', () => socket.write(reply))
  })
  await expect(complete(clientExpecting(at))).rejects.toMatchObject({ code, wasSent: false })
})

it('a connection for completions fails when what listens is silent', async () => {
  const at = await listen(() => undefined)
  await expect(complete(clientExpecting(at))).rejects.toMatchObject({
    code: 'timeout',
    wasSent: false,
  })
})

/** A client whose completions go only to the enclave of this notary. */
function clientExpecting(
  { socketPath }: { readonly socketPath: string },
  expectedNotary = () => '',
): EnclaveClient {
  const client = new EnclaveClient({ socketPath, callsMax: 4, expectedNotary })
  ends.push(() => client.close())
  return client
}

const complete = (client: EnclaveClient) => client.complete(call, body, live())

/** Something that does this to each connection. */
async function listen(
  connected: (socket: Socket) => void,
): Promise<{ readonly socketPath: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-connector-'))
  const socketPath = join(folder, 'enclave.sock')
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    connected(socket)
  })
  await new Promise<void>((resolve) => server.listen(socketPath, resolve))
  ends.push(async () => {
    server.close()
    await rm(folder, { recursive: true, force: true })
  })
  return { socketPath }
}

function replyOf(status: number, value: object): string {
  const body = JSON.stringify(value)
  return `HTTP/1.1 ${status} X\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}
