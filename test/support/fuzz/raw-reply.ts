import { brotliDecompressSync, gunzipSync } from 'node:zlib'

/** A reply as it came over the socket. */
export type RawReply = {
  readonly status: number
  /** By name in lower case; a repeated header has its last value. */
  readonly headers: ReadonlyMap<string, string>
  /** Without its transfer and content coding. */
  readonly body: Buffer
}

/**
 * The first reply in the bytes of a connection, after interim ones (100, 103); null while it is not
 * complete. A reply that only the end of the connection ends is complete when `isClosed`. Throws
 * when the bytes are not a reply.
 */
export function readReply(bytes: Buffer, method: string, isClosed: boolean): RawReply | null {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) return null
  const [line = '', ...rest] = bytes.subarray(0, end).toString('latin1').split('\r\n')
  const [, digits] = /^HTTP\/1\.1 (\d{3}) /.exec(line) ?? []
  if (digits === undefined)
    throw new Error(`expected a status line, got ${JSON.stringify(line.slice(0, 200))}`)
  const status = Number(digits)
  const after = bytes.subarray(end + 4)
  if (status < 200 && status !== 101) return readReply(after, method, isClosed)
  const headers = new Map(rest.map((header) => splitHeader(header)))
  const coded = hasNoBody(status, method) ? Buffer.alloc(0) : readBody(after, headers, isClosed)
  return coded === null
    ? null
    : { status, headers, body: decode(coded, headers.get('content-encoding')) }
}

function splitHeader(header: string): readonly [string, string] {
  const colon = header.indexOf(':')
  if (colon < 1) throw new Error(`expected a header, got ${JSON.stringify(header.slice(0, 200))}`)
  return [header.slice(0, colon).toLowerCase(), header.slice(colon + 1).trim()]
}

function hasNoBody(status: number, method: string): boolean {
  return method === 'HEAD' || status === 101 || status === 204 || status === 304
}

function readBody(
  bytes: Buffer,
  headers: ReadonlyMap<string, string>,
  isClosed: boolean,
): Buffer | null {
  const length = headers.get('content-length')
  if (length !== undefined)
    return bytes.length >= Number(length) ? bytes.subarray(0, Number(length)) : null
  if (headers.get('transfer-encoding') === 'chunked') return readChunks(bytes)
  return isClosed ? bytes : null
}

function readChunks(bytes: Buffer): Buffer | null {
  const parts: Buffer[] = []
  for (let at = 0; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) return null
    const length = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (Number.isNaN(length)) throw new Error('expected the length of a chunk')
    const start = lineEnd + 2
    if (bytes.length < start + length + 2) return null
    if (length === 0) return Buffer.concat(parts)
    parts.push(bytes.subarray(start, start + length))
    at = start + length + 2
  }
}

function decode(bytes: Buffer, coding = 'identity'): Buffer {
  if (bytes.length === 0 || coding === 'identity') return bytes
  if (coding === 'gzip') return gunzipSync(bytes)
  if (coding === 'br') return brotliDecompressSync(bytes)
  throw new Error(`expected a known coding, got ${coding}`)
}
