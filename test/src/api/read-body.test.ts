import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { createAdmission } from '#src/api/admission.ts'
import { CallerLeftError } from '#src/api/errors.ts'
import { LEAST_RATE } from '#src/api/least-rate.ts'
import { discardBody, passBody, readJsonBody } from '#src/api/read-body.ts'
import { connectRaw } from '../../support/raw-http.ts'
import { until } from '../../support/until.ts'

const HEAD =
  'POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n'

/** A server that received the head of one request, and the request. */
async function receive(sent: string | Uint8Array) {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const arrived = once(server, 'request') as Promise<[IncomingMessage, ServerResponse]>
  const connection = await connectRaw((server.address() as AddressInfo).port)
  connection.write(sent)
  const [request, response] = await arrived
  request.on('error', () => {})
  return { server, connection, request, response }
}

/** Reads the body of one request, whose caller sent `sent` and left before the reading began. */
async function readLate(sent: string): Promise<Buffer> {
  const { server, connection, request, response } = await receive(sent)
  const closed = once(response, 'close')
  connection.socket.destroy()
  await closed
  const slot = createAdmission({ callsMax: 1, bytesMax: 100 }).admit('one')
  try {
    return await readJsonBody(request, response, { slot, rate: LEAST_RATE, bytesMax: 100 })
  } finally {
    server.close()
  }
}

it.each([
  ['in the middle of the body', `${HEAD}{`],
  ['before the body', HEAD],
  ['after the body', `${HEAD}{}`],
])('a body is not waited for when its caller left %s, before it was read', async (_, sent) => {
  await expect(readLate(sent)).rejects.toThrow(CallerLeftError)
})

/** Passes on a long body whose reader breaks off when parts wait to be read. */
async function passUntilBroken() {
  const length = 16 * 2 ** 20
  const head = HEAD.replace('content-length: 2', `content-length: ${length}`)
  const received = await receive(Buffer.concat([Buffer.from(head), Buffer.alloc(length)]))
  const { request, response } = received
  const body = passBody(request, response, { bytesMax: length, rate: LEAST_RATE })
  const { stream } = body
  stream.read()
  await until('a full buffer', () => stream.readableLength >= stream.readableHighWaterMark)
  const closed = new Promise((resolve) => stream.once('close', resolve))
  stream.destroy(new Error('broken off'))
  await closed
  return { ...received, body }
}

it('the sender of a body is not at fault when its reader breaks off', async () => {
  const { server, connection, body } = await passUntilBroken()
  expect(body.fault()).toBe(null)
  connection.socket.destroy()
  server.close()
})

it('the rest of a body is discarded after its reader broke off', async () => {
  const { server, connection, request } = await passUntilBroken()
  discardBody(request)
  await once(request, 'end', { signal: AbortSignal.timeout(5_000) })
  connection.socket.destroy()
  server.close()
})
