import fc from 'fast-check'

/** A request as it goes over the socket. Texts are Latin-1: a character is a byte. */
export type FuzzRequest = {
  readonly method: string
  readonly target: string
  readonly headers: readonly Header[]
  readonly body: Uint8Array
  readonly framing: Framing
}

export type Header = readonly [name: string, value: string]

/**
 * How the end of the body is given: by its length, in chunks of this size, or by these headers,
 * which may be false: such a request may never end.
 */
export type Framing =
  | { readonly kind: 'length' }
  | { readonly kind: 'chunked'; readonly chunkBytes: number }
  | { readonly kind: 'conflicting'; readonly headers: readonly Header[] }

/** Most chunks: a long body gets larger chunks than requested. */
const CHUNKS_MAX = 5_000

/** Maximum characters of a request that a report shows. */
const SHOWN_LENGTH_MAX = 3_000

/** Bytes of a request, head and body. */
export function writeRequest({ method, target, headers, body, framing }: FuzzRequest): Buffer {
  const lines = [...headers, ...framingHeaders(framing, body)].map(
    ([name, value]) => `${name}: ${value}\r\n`,
  )
  const head = Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n`, 'latin1')
  return Buffer.concat([
    head,
    framing.kind === 'chunked' ? writeChunks(body, framing.chunkBytes) : body,
  ])
}

/** The request with a text for fast-check's reports: its bytes in Latin-1, shortened. */
export function showInReports(request: FuzzRequest): FuzzRequest {
  const show = () => {
    const text = JSON.stringify(writeRequest(request).toString('latin1'))
    return text.length > SHOWN_LENGTH_MAX
      ? `${text.slice(0, SHOWN_LENGTH_MAX)}… of ${text.length}`
      : text
  }
  return Object.defineProperty({ ...request }, fc.toStringMethod, {
    value: show,
    enumerable: false,
  })
}

function framingHeaders(framing: Framing, body: Uint8Array): readonly Header[] {
  switch (framing.kind) {
    case 'length':
      return [['content-length', String(body.length)]]
    case 'chunked':
      return [['transfer-encoding', 'chunked']]
    case 'conflicting':
      return framing.headers
  }
}

function writeChunks(body: Uint8Array, chunkBytes: number): Buffer {
  const parts: Uint8Array[] = []
  const step = Math.max(chunkBytes, Math.ceil(body.length / CHUNKS_MAX))
  for (let at = 0; at < body.length; at += step) {
    const chunk = body.subarray(at, at + step)
    parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'))
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')])
}
