import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { buildConnector } from 'undici'
import { afterEach, expect, it } from 'vitest'
import { checkedConnector } from '#src/enclaves/connection-check.ts'
import { EnclaveClient } from '#src/enclaves/enclave-client.ts'
import { startScriptedEnclave } from '../../support/scripted-enclave.ts'
import { until } from '../../support/until.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

it.each([
  ['is expected before and after', { before: 'it', after: 'it' }, null],
  ['is accepted only meanwhile', { before: 'another', after: 'it' }, 'unavailable'],
  ['is given up meanwhile', { before: 'it', after: 'another' }, 'unavailable'],
])('a connection to an enclave that %s its check ends with %o: %s', async (...row) => {
  const [, { before, after }, code] = row
  const { socketPath, notary, asked, reply } = await listen(PATIENT)
  let expected = before
  const connection = connectTo(socketPath, PATIENT, () => (expected === 'it' ? notary : expected))()
  await until('the identity is asked', () => asked.length === 1)
  expected = after
  asked[0]?.end(reply)
  if (code === null) expect(await connection).toBeNull()
  else expect(await connection).toMatchObject({ code, wasSent: false })
})

it('new connections wait for their turn while the enclave answers one after the other', async () => {
  const { connect, asked, reply } = await listen({ silenceMaxMs: 1_500, timeoutMs: 60_000 })
  const connections = [connect(), connect(), connect(), connect()]
  for (let turn = 0; turn < 4; turn++) {
    await sleep(500)
    asked[turn]?.end(reply)
  }
  for (const connection of connections) expect(await connection).toBeNull()
})

it('new connections are given up when the enclave falls silent after it answered some of them', async () => {
  const { connect, asked, reply } = await listen({ silenceMaxMs: 1_500, timeoutMs: 60_000 })
  const connections = [connect(), connect(), connect()]
  await sleep(500)
  asked[0]?.end(reply)
  expect(await connections[0]).toBeNull()
  expect(await connections[1]).toMatchObject({ code: 'timeout', wasSent: false })
  expect(await connections[2]).toMatchObject({ code: 'timeout', wasSent: false })
})

it('new connections are not waited for without end while the enclave answers others', async () => {
  const { connect, asked, reply } = await listen({ silenceMaxMs: 1_500, timeoutMs: 2_000 })
  let isOver = false
  const first = connect().finally(() => {
    isOver = true
  })
  while (!isOver) {
    const other = connect()
    await sleep(100)
    asked.at(-1)?.end(reply)
    await other
  }
  expect(asked.length).toBeGreaterThan(3)
  expect(await first).toMatchObject({ code: 'timeout', wasSent: false })
})

it('new connections are given when the enclave answered what this process was too busy to read', async () => {
  const { socketPath, notary, reply } = await listen({ silenceMaxMs: 500, timeoutMs: 60_000 })
  const elsewhere = `${socketPath}-elsewhere`
  const code = `const { workerData: [path, reply], parentPort } = require('node:worker_threads')
    const answer = (socket) => socket.once('data', () => {
      parentPort.postMessage('asked')
      setTimeout(() => socket.write(reply), 200)
    })
    require('node:net').createServer(answer).listen(path, () => parentPort.postMessage('ready'))`
  const worker = new Worker(code, { eval: true, workerData: [elsewhere, reply] })
  ends.push(() => worker.terminate())
  await once(worker, 'message')
  const patience = { silenceMaxMs: 500, timeoutMs: 60_000 }
  const connection = connectTo(elsewhere, patience, () => notary)()
  await once(worker, 'message')
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 900)
  expect(await connection).toBeNull()
})

type Patience = { readonly silenceMaxMs: number; readonly timeoutMs: number }

const PATIENT: Patience = { silenceMaxMs: 10_000, timeoutMs: 10_000 }

/** What listens at a socket, with the reply of a true enclave, which it gives when the test says so. */
async function listen(patience: Patience) {
  const enclave = await startScriptedEnclave({})
  ends.push(enclave.stop)
  const client = new EnclaveClient({ socketPath: enclave.socketPath, callsMax: 1 })
  const { notary, ...facts } = await client.identity()
  const identity = JSON.stringify({ notary, ...facts })
  await client.close()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-check-'))
  ends.push(() => rm(folder, { recursive: true, force: true }))
  const socketPath = join(folder, 'enclave.sock')
  const asked: Socket[] = []
  const server = createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => asked.push(socket))
    ends.push(() => socket.destroy())
  })
  server.listen(socketPath)
  await once(server, 'listening')
  ends.push(() => server.close())
  return {
    socketPath,
    notary,
    asked,
    reply: `HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(identity)}\r\n\r\n${identity}`,
    connect: connectTo(socketPath, patience, () => notary),
  }
}

/** Makes connections by one connector. Each gives null once it may be used, else why not. */
function connectTo(
  socketPath: string,
  patience: Patience,
  expectedNotary: () => string,
): () => Promise<Error | null> {
  const connector = checkedConnector({
    connect: buildConnector({ socketPath }),
    expectedNotary,
    patience,
  })
  const target = { hostname: 'enclave', protocol: 'http:', port: '80' }
  return () =>
    new Promise((resolve) => {
      connector(target, (...[error, socket]) => {
        ends.push(() => socket?.destroy())
        resolve(error)
      })
    })
}
