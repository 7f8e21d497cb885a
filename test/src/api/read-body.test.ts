import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { createAdmission } from '../../../src/api/admission.ts'
import { CallerLeftError } from '../../../src/api/errors.ts'
import { LEAST_RATE } from '../../../src/api/least-rate.ts'
import { readJsonBody } from '../../../src/api/read-body.ts'
import { connectRaw } from '../../support/raw-http.ts'

const HEAD =
  'POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n'

/** Reads the body of one request, whose caller sent `sent` and left before the reading began. */
async function readLate(sent: string): Promise<Buffer> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const arrived = once(server, 'request') as Promise<[IncomingMessage, ServerResponse]>
  const connection = await connectRaw((server.address() as AddressInfo).port)
  connection.write(sent)
  const [request, response] = await arrived
  request.on('error', () => {})
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
