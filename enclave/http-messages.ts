import type { IncomingMessage, ServerResponse } from 'node:http'
import { ByteBuffer } from './byte-buffer.ts'
import { CallerGone, CallFault } from './call-fault.ts'

/**
 * The body of a request. Throws CallFault `invalid_request` with status 413 over `bytesMax`, CallerGone when it ends in
 * the middle, and what `take` throws, which is told the bytes of each packet before it is kept.
 */
export async function readRequest(
  request: IncomingMessage,
  bytesMax: number,
  take: (bytes: number) => void = () => undefined,
): Promise<Uint8Array> {
  const tooLarge = () =>
    new CallFault('invalid_request', `expected a body of at most ${bytesMax} bytes`, {
      status: 413,
      loc: ['body'],
    })
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw tooLarge()
  const buffer = new ByteBuffer()
  try {
    for await (const packet of request as AsyncIterable<Uint8Array>) {
      if (buffer.length + packet.length > bytesMax) throw tooLarge()
      take(packet.length)
      buffer.append(packet)
    }
  } catch (error) {
    if (error instanceof CallFault) throw error
    throw new CallerGone('the gateway closed the connection within a request')
  }
  return buffer.take()
}

/** Sends a JSON body. */
export function sendJson(response: ServerResponse, status: number, body: object): void {
  const text = Buffer.from(JSON.stringify(body))
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length })
  response.end(text)
}
