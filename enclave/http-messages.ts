import type { IncomingMessage, ServerResponse } from 'node:http'
import { ByteBuffer } from '#attestation/byte-buffer.ts'
import { CallerGone, CallFault, logFull } from './call-fault.ts'

/**
 * Reads the body of a request. Throws CallFault `invalid_request` with status 413 above `bytesMax`,
 * and CallerGone when the body is cut. `take` is called with the size of each packet, and returns
 * false if memory is short. Then reads and drops the rest, so that the connection stays usable, and
 * throws CallFault `log_full`.
 */
export async function readRequest(
  request: IncomingMessage,
  bytesMax: number,
  take: (bytes: number) => boolean = () => true,
): Promise<Uint8Array> {
  const tooLarge = () =>
    new CallFault('invalid_request', `expected a body of at most ${bytesMax} bytes`, {
      status: 413,
      loc: ['body'],
    })
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw tooLarge()
  const buffer = new ByteBuffer()
  let readBytes = 0
  let hasMemory = true
  try {
    for await (const packet of request as AsyncIterable<Uint8Array>) {
      readBytes += packet.length
      if (readBytes > bytesMax) throw tooLarge()
      hasMemory &&= take(packet.length)
      if (hasMemory) buffer.append(packet)
      else buffer.take()
    }
  } catch (error) {
    if (error instanceof CallFault) throw error
    throw new CallerGone('the gateway closed the connection within a request')
  }
  if (!hasMemory) throw logFull()
  return buffer.take()
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  const text = Buffer.from(JSON.stringify(body))
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length })
  response.end(text)
}
