import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { Slot } from './admission.ts'
import { ApiError, CallerLeftError } from './errors.ts'
import { type LeastRate, watchRate } from './least-rate.ts'

/**
 * This many bytes of a refused upload are read and dropped, so that the sender can read the answer.
 * Then the connection is cut.
 */
const DISCARD_BYTES_MAX = 64 * 1024 * 1024

/**
 * Returns the exact bytes of a JSON request's body, at most `bytesMax`. `slot` counts the bytes. A
 * client that waits for `100 Continue` is asked for its body here, not earlier. Throws ApiError
 * `unsupported_media_type` (another content type, a charset other than UTF-8, any content coding),
 * `payload_too_large`, `overloaded` and `body_too_slow`. Throws CallerLeftError if the upload was
 * broken off.
 */
export async function readJsonBody(
  request: IncomingMessage,
  response: ServerResponse,
  limits: BodyLimits,
): Promise<Buffer> {
  checkMediaType(request)
  return readBody(request, response, limits)
}

export type BodyLimits = {
  readonly slot: Slot
  readonly bytesMax: number
  readonly rate: LeastRate
}

/** A body that is passed on while it arrives, and not stored. */
export type PassedBody = {
  /** Read the stream once. When the stream ends, the connection stays open for the answer. */
  readonly stream: Readable
  bytes(): number
  /** The sender's fault that ended the stream early: ApiError or CallerLeftError. */
  fault(): Error | null
}

/**
 * Returns a body of any type to pass on, at most `bytesMax` bytes. A client that waits for `100
 * Continue` is asked for its body here. Throws ApiError `payload_too_large` if the announced length
 * is too large. Without an announced length, a body that is too long ends the stream with this
 * error. If the caller leaves, the stream ends with CallerLeftError.
 */
export function passBody(
  request: IncomingMessage,
  response: ServerResponse,
  { bytesMax, rate }: Pick<BodyLimits, 'bytesMax' | 'rate'>,
): PassedBody {
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw tooLarge(bytesMax)
  let bytes = 0
  let waitedMs = 0
  let fault: Error | null = null
  const parts = request.iterator({ destroyOnReturn: false })

  /** Measures only the waits for the sender, because the reader may be slow. */
  async function next(): Promise<IteratorResult<Buffer>> {
    const { promise, reject } = Promise.withResolvers<never>()
    const beganMs = performance.now()
    const watch = watchRate(rate, { bytes: () => bytes, waitedMs, fail: reject })
    try {
      return await Promise.race([parts.next(), promise])
    } finally {
      watch.stop()
      waitedMs += performance.now() - beganMs
    }
  }

  /** Returns null at the body's end. */
  async function nextPart(): Promise<Buffer | null> {
    try {
      const { done, value: part } = await next()
      if (done) return null
      bytes += part.length
      if (bytes > bytesMax) throw tooLarge(bytesMax)
      return part
    } catch (error) {
      fault = error instanceof ApiError ? error : new CallerLeftError()
      throw fault
    }
  }

  async function* read(): AsyncGenerator<Buffer> {
    if (request.headers.expect?.toLowerCase() === '100-continue') response.writeContinue()
    try {
      // `yield` throws if the stream is destroyed. That is the reader's fault, not the sender's.
      for (let part = await nextPart(); part !== null; part = await nextPart()) yield part
    } finally {
      // Otherwise the iterator's listener would keep discardBody from reading the rest.
      void parts.return?.()
    }
  }

  const stream = Readable.from(read(), { objectMode: false })
  stream.on('error', () => {})
  return { stream, bytes: () => bytes, fault: () => fault }
}

/** Reads any content type, which the calling code must check. Throws as readJsonBody does. */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  { slot, bytesMax, rate }: BodyLimits,
): Promise<Buffer> {
  const declaredBytes = Number(request.headers['content-length'] ?? 0)
  if (declaredBytes > bytesMax) throw tooLarge(bytesMax)
  slot.reserve(declaredBytes)
  if (request.headers.expect?.toLowerCase() === '100-continue') response.writeContinue()
  return collect(request, { slot, bytesMax, rate, reservedBytes: declaredBytes })
}

/** Least memory of a JSON value, in addition to its text. */
const VALUE_BYTES = 16
/** Each value except the first follows `,`, `:`, `[` or `{`. */
const VALUE_MARKS: ReadonlySet<number> = new Set([0x2c, 0x3a, 0x5b, 0x7b])

/**
 * Returns the least memory that the values in JSON text need, in addition to the text. The values
 * of `[0,0,0,…]` need many times the text's length. Marks inside strings count, too.
 */
export function weighValues(json: Uint8Array): number {
  let marks = 0
  for (const byte of json) if (VALUE_MARKS.has(byte)) marks++
  return marks * VALUE_BYTES
}

/**
 * Drops the rest of a request, so that its connection can be used again. Cuts the connection if the
 * rest is too long.
 */
export function discardBody(request: IncomingMessage): void {
  if (request.readableEnded || request.destroyed) return
  let bytes = 0
  request.on('error', () => {})
  request.on('data', (part: Buffer) => {
    bytes += part.length
    if (bytes > DISCARD_BYTES_MAX) request.socket.destroy()
  })
}

function collect(
  request: IncomingMessage,
  { slot, bytesMax, rate, reservedBytes }: BodyLimits & { readonly reservedBytes: number },
): Promise<Buffer> {
  // If the caller has already left, no event will report it.
  if (request.destroyed && !request.readableEnded) return Promise.reject(new CallerLeftError())
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let bytes = 0
    const detach = () => {
      watch.stop()
      request.off('data', onData).off('end', onEnd).off('close', onLeft).off('error', onLeft)
    }
    const fail = (error: unknown) => {
      detach()
      reject(error)
    }
    const onData = (part: Buffer) => {
      try {
        bytes += part.length
        if (bytes > bytesMax) throw tooLarge(bytesMax)
        if (bytes > reservedBytes) slot.reserve(part.length)
        parts.push(part)
      } catch (error) {
        fail(error)
      }
    }
    const onEnd = () => {
      detach()
      resolve(parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts, bytes))
    }
    const onLeft = () => fail(new CallerLeftError())
    const watch = watchRate(rate, { bytes: () => bytes, fail })
    request.on('data', onData).on('end', onEnd).on('close', onLeft).on('error', onLeft)
  })
}

function checkMediaType({ headers }: IncomingMessage): void {
  if (!JSON_TYPE.test(headers['content-type'] ?? ''))
    throw new ApiError(
      'unsupported_media_type',
      `Expected content-type application/json, in UTF-8, got ${shownType(headers['content-type'])}`,
    )
  if ((headers['content-encoding'] ?? 'identity').toLowerCase() !== 'identity')
    throw new ApiError(
      'unsupported_media_type',
      'Expected no content-encoding: the gateway hashes the bytes as they are sent',
    )
}

/** Returns a content type as error messages show it. */
export function shownType(type: string | undefined): string {
  return type === undefined ? 'none' : type.slice(0, 100)
}

const JSON_TYPE = /^\s*application\/json\s*(;\s*charset\s*=\s*"?utf-?8"?\s*)?;?\s*$/i

function tooLarge(bytesMax: number): ApiError {
  return new ApiError('payload_too_large', `Expected a body of at most ${bytesMax} bytes`)
}
