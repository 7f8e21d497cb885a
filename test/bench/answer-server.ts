import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parentPort, workerData } from 'node:worker_threads'

/** Prepared answers by the nonce of their request: content type and body. */
export type ReadyAnswers = ReadonlyMap<string, { readonly type: string; readonly body: Uint8Array }>

/**
 * A worker that serves prepared answers over HTTP on loopback, so that the other thread measures
 * the client alone. It posts its port.
 */
const answers = workerData as ReadyAnswers
const server = createServer((request, response) => {
  const parts: Buffer[] = []
  request.on('data', (part: Buffer) => parts.push(part))
  request.on('end', () => {
    const { affidavit } = JSON.parse(Buffer.concat(parts).toString())
    const answer = answers.get(affidavit.nonce)
    if (answer === undefined) return void response.writeHead(404).end()
    response.writeHead(200, { 'content-type': answer.type, 'content-length': answer.body.length })
    response.end(answer.body)
  })
})
server.listen(0, '127.0.0.1', () => parentPort?.postMessage((server.address() as AddressInfo).port))
