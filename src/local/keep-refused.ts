import { subscribe } from 'node:diagnostics_channel'
import { mkdirSync, writeFileSync } from 'node:fs'
import type { IncomingMessage } from 'node:http'
import { join } from 'node:path'

/*
 * Loaded before a development enclave (node --import) when KEEP_REFUSED is set: the query of its
 * URL names the folder. Records what each provider sends, and writes the body of a refused stream
 * to a file. The enclave itself writes no content: it only says on a channel of its own process
 * which body it refused.
 */

/** A longer body is kept up to here. */
const KEPT_BYTES_MAX = 64 * 1024 * 1024

const received = new WeakMap<object, Buffer[]>()
const folder = new URL(import.meta.url).searchParams.get('folder') ?? '.'

subscribe('http.client.response.finish', (message) => record(responseOf(message)))

subscribe('affidavit.refused_stream', (message) => {
  const { body, code } = message as { readonly body: object; readonly code: string }
  const file = join(folder, `${new Date().toISOString().replaceAll(':', '')}-${code}.txt`)
  try {
    mkdirSync(folder, { recursive: true })
    writeFileSync(file, Buffer.concat(received.get(body) ?? []), { mode: 0o600 })
    console.log(JSON.stringify({ event: 'refused_stream_kept', level: 'warn', file }))
  } catch (fault) {
    // An error of a subscriber would end the enclave, and a provider chooses when.
    const { message: reason } = fault as Error
    console.log(JSON.stringify({ event: 'refused_stream_not_kept', level: 'error', reason }))
  }
})

function record(body: IncomingMessage): void {
  const chunks: Buffer[] = []
  received.set(body, chunks)
  const push = body.push.bind(body)
  let bytes = 0
  body.push = (chunk, encoding) => {
    if (Buffer.isBuffer(chunk) && bytes < KEPT_BYTES_MAX) {
      chunks.push(Buffer.from(chunk))
      bytes += chunk.length
    }
    return push(chunk, encoding)
  }
}

function responseOf(message: unknown): IncomingMessage {
  return (message as { readonly response: IncomingMessage }).response
}
