import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { Slot } from './admission.ts'
import { ApiError, CallerLeftError } from './errors.ts'
import { type LeastRate, watchRate } from './least-rate.ts'

/**
 * Bytes of a refused upload that are read and thrown away, so that its sender comes to read the
 * answer instead of failing on a closed connection; then the connection is cut.
 */
const DISCARD_BYTES_MAX = 64 * 1024 * 1024

/**
 * Exact bytes of a JSON request's body, at most `bytesMax`, counted to `slot`. A client that waits
 * for `100 Continue` is asked for the body only here. Throws ApiError `unsupported_media_type`
 * (another content type, another charset than UTF-8, any content coding), `payload_too_large`,
 * `overloaded`, `body_too_slow`; CallerLeftError for an upload that was broken off.
 */
export async function readJsonBody(
  request: IncomingMessage,
  response: ServerResponse,
  limits: BodyLimits,
): Promise<Buffer> {
  checkMediaType(request)
  return readBody(request, response, limits)
}

/** What a body may be, and the call it is held for. */
export type BodyLimits = {
  readonly slot: Slot
  readonly bytesMax: number
  readonly rate: LeastRate
}

/** A body that is passed on as it comes, and not held. */
export type PassedBody = {
  /** Read it once. Its end or failure does not end the request, whose answer is still due. */
  readonly stream: Readable
  /** Bytes that were passed on so far. */
  bytes(): number
  /** Why it ended early through its sender: ApiError or CallerLeftError; null when it did not. */
  fault(): Error | null
}

/**
 * The body of a request, of any type, to be passed on; at most `bytesMax`. A client that waits for
 * `100 Continue` is asked for it here. Throws ApiError `payload_too_large` for a length that says
 * so; else the stream ends with that, or with CallerLeftError.
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

  /**
   * Only the time that is spent waiting for the sender counts: the reader of the parts may be slow.
   */
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

  async function* read(): AsyncGenerator<Buffer> {
    if (request.headers.expect?.toLowerCase() === '100-continue') response.writeContinue()
    try {
      for (;;) {
        const { done, value: part } = await next()
        if (done) break
        bytes += part.length
        if (bytes > bytesMax) throw tooLarge(bytesMax)
        yield part
      }
    } catch (error) {
      fault = error instanceof ApiError ? error : new CallerLeftError()
      throw fault
    }
  }

  const stream = Readable.from(read(), { objectMode: false })
  stream.on('error', () => {})
  return { stream, bytes: () => bytes, fault: () => fault }
}

/** As readJsonBody, but for any content type: the caller of this function has checked it. */
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

/** Least bytes of memory that a value of JSON takes, beside its text. */
const VALUE_BYTES = 16
/** `,`, `:`, `[` and `{`: one stands before each value but the first. */
const VALUE_MARKS: ReadonlySet<number> = new Set([0x2c, 0x3a, 0x5b, 0x7b])

/**
 * Bytes that the values of JSON text take beside their texts, at least: `[0,0,0,…]` takes many
 * times its length. Marks within strings count too.
 */
export function weighValues(json: Uint8Array): number {
  let marks = 0
  for (const byte of json) if (VALUE_MARKS.has(byte)) marks++
  return marks * VALUE_BYTES
}

/**
 * Lets the rest of a request go by, so that its connection can be used again; cuts it when that
 * takes too much.
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
  // When the caller left before this, no event will report it.
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

/** The content type that came, for a message. */
export function shownType(type: string | undefined): string {
  return type === undefined ? 'none' : type.slice(0, 100)
}

const JSON_TYPE = /^\s*application\/json\s*(;\s*charset\s*=\s*"?utf-?8"?\s*)?;?\s*$/i

function tooLarge(bytesMax: number): ApiError {
  return new ApiError('payload_too_large', `Expected a body of at most ${bytesMax} bytes`)
}
