import type { IncomingMessage } from 'node:http'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import { ByteBuffer } from '#attestation/byte-buffer.ts'
import { messageOf } from '#client/errors.ts'
import { leavable } from '#client/gateway.ts'
import { CONTENT_CODINGS, type UndoCoding } from '../../runtime/codings.ts'

/** The proxy itself refuses a request, with this status. The gateway did not receive it. */
export class RequestRefused extends Error {
  override readonly name = 'RequestRefused'
  readonly status: number
  readonly code: string
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, code: string, message: string, headers = {}) {
    super(message)
    this.status = status
    this.code = code
    this.headers = headers
  }
}

/** Bytes, also of a body that was decompressed. The gateway's own limit is smaller. */
const REQUEST_BYTES_MAX = 64 * 1024 * 1024

export type RequestLimits = {
  /** Bytes of the bodies of all requests that run at the same time. */
  readonly bytesMax: number
  /** Milliseconds without a byte of a body after which its request is refused. */
  readonly silenceMs: number
}

export const BODY_LIMITS: RequestLimits = { bytesMax: 4 * REQUEST_BYTES_MAX, silenceMs: 10_000 }

export type RequestBody = {
  /** Null for another method than POST. */
  readonly bytes: Buffer<ArrayBuffer> | null
  /** The bytes are no longer counted. */
  release(): void
}

/**
 * Returns a function that reads the body of a request, and undoes its coding, since the gateway
 * hashes and reads plain bytes. The bytes of a body count until `release`. Rejects with
 * RequestRefused: 400, 408 after a silence, 413, 415, and 503 when all bodies together are too
 * large. Rejects with the signal's reason when the signal is aborted.
 */
export function createBodyReader({ bytesMax, silenceMs }: RequestLimits) {
  let held = 0
  let decoding: Promise<unknown> = Promise.resolve()

  /** One body's share of the bytes that are held. */
  function openShare() {
    let size = 0
    return {
      /** Throws RequestRefused. */
      resize(bytes: number): void {
        if (bytes > REQUEST_BYTES_MAX) throw tooLarge()
        if (held - size + bytes > bytesMax) throw tooMany(bytesMax)
        held += bytes - size
        size = bytes
      },
      release(): void {
        held -= size
        size = 0
      },
    }
  }
  type Share = ReturnType<typeof openShare>

  /** After an abort, the rest is dropped too. */
  async function receive(
    request: IncomingMessage,
    { share, signal, timer }: { share: Share; signal: AbortSignal; timer: NodeJS.Timeout },
  ): Promise<Buffer<ArrayBuffer>> {
    const bytes = new ByteBuffer()
    let refusal: unknown = null
    for await (const part of request as AsyncIterable<Buffer>) {
      timer.refresh()
      // The rest of a refused body is read and dropped, because a client reads no answer while it
      // sends.
      if (refusal !== null) continue
      try {
        signal.throwIfAborted()
        share.resize(bytes.length + part.length)
        bytes.append(part)
      } catch (fault) {
        refusal = fault
        share.release()
        bytes.take()
      }
    }
    if (refusal !== null) throw refusal
    const { buffer, byteOffset, length } = bytes.take() as Uint8Array<ArrayBuffer>
    return Buffer.from(buffer, byteOffset, length)
  }

  async function receiveInTime(
    request: IncomingMessage,
    { share, signal }: { readonly share: Share; readonly signal: AbortSignal },
  ): Promise<Buffer<ArrayBuffer>> {
    const silence = new AbortController()
    const timer = setTimeout(() => silence.abort(tooSlow(silenceMs)), silenceMs)
    const either = AbortSignal.any([signal, silence.signal])
    try {
      return await leavable(receive(request, { share, signal: either, timer }), either)
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * Bodies are decompressed one at a time: each could become as large as the limit. After an abort,
   * a body still waits for its turn, because its bytes stay in memory until then.
   */
  function decode(
    bytes: Buffer<ArrayBuffer>,
    { coding, signal }: { readonly coding: string; readonly signal: AbortSignal },
  ): Promise<Buffer<ArrayBuffer>> {
    const decoded = decoding.then(async () => {
      signal.throwIfAborted()
      if (held + REQUEST_BYTES_MAX > bytesMax) throw tooMany(bytesMax)
      held += REQUEST_BYTES_MAX
      return await undoCoding(bytes, coding).finally(() => {
        held -= REQUEST_BYTES_MAX
      })
    })
    decoding = decoded.catch(() => undefined)
    return decoded
  }

  return async (request: IncomingMessage, signal: AbortSignal): Promise<RequestBody> => {
    if (request.method !== 'POST') return { bytes: null, release: () => undefined }
    const share = openShare()
    try {
      const bytes = await receiveInTime(request, { share, signal })
      const coding = (request.headers['content-encoding'] ?? '').trim().toLowerCase()
      if (coding === 'identity' || coding === '') return { bytes, release: share.release }
      const decoded = await decode(bytes, { coding, signal })
      signal.throwIfAborted()
      share.resize(decoded.length)
      return { bytes: decoded, release: share.release }
    } catch (fault) {
      share.release()
      throw fault
    }
  }
}

function tooLarge(): RequestRefused {
  return new RequestRefused(413, 'payload_too_large', `expected at most ${REQUEST_BYTES_MAX} bytes`)
}

function tooMany(bytesMax: number): RequestRefused {
  return new RequestRefused(
    503,
    'proxy_busy',
    `expected at most ${bytesMax} bytes in the requests that run at the same time: try again later`,
    { 'retry-after': '1' },
  )
}

function tooSlow(silenceMs: number): RequestRefused {
  return new RequestRefused(
    408,
    'request_timeout',
    `expected a byte of the body within ${silenceMs} ms`,
    { connection: 'close' },
  )
}

const CODINGS = new Map<string, UndoCoding>(CONTENT_CODINGS)
// The package runs on Node.js 20 too, which has no zstd.
if (Object.hasOwn(zlib, 'zstdDecompress'))
  CODINGS.set('zstd', promisify<Buffer, object, Buffer<ArrayBuffer>>(zlib.zstdDecompress))
const CODING_NAMES = [...CODINGS.keys()].join(', ')

async function undoCoding(
  bytes: Buffer<ArrayBuffer>,
  coding: string,
): Promise<Buffer<ArrayBuffer>> {
  const decode = CODINGS.get(coding.replace(/^x-(?=gzip$)/, ''))
  if (decode === undefined)
    throw new RequestRefused(
      415,
      'unsupported_media_type',
      `expected content-encoding ${CODING_NAMES} or none, got ${coding.slice(0, 100)}`,
      // RFC 9110, section 12.5.3.
      { 'accept-encoding': CODING_NAMES },
    )
  try {
    return await decode(bytes, { maxOutputLength: REQUEST_BYTES_MAX })
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge()
    throw new RequestRefused(
      400,
      'invalid_request',
      `expected a body in ${coding}: ${messageOf(fault)}`,
    )
  }
}
