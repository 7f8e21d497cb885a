import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { multipart, type Part } from 'formidable'
import type { Context } from 'koa'
import { koaBody } from 'koa-body'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import type { RouteContext } from './context.ts'
import { ApiError, ValidationError } from './errors.ts'
import { type BodyLimits, readBody, shownType } from './read-body.ts'

/** Parts of one form: the interface's have seven. */
export const PARTS_MAX = 32
/** Bytes of the headers of one part. */
export const PART_HEADERS_BYTES_MAX = 8 * 1024

/**
 * Least distance of carriage returns, bytes, on average. The parser makes two chunks at each, and
 * 25 MiB of nothing else would keep it busy for ten seconds; in an image they stand 256 bytes
 * apart. So many may be as close as they like.
 */
const RETURN_DISTANCE_MIN = 64
const RETURNS_FREE = 2_048

/** One part of a form. Everything in it was written by the caller. */
export type FormPart = {
  readonly name: string
  /** Null for a part that is no file. */
  readonly filename: string | null
  readonly bytes: Uint8Array
}

/**
 * Parts of the form that a request carries, in their order. Throws ApiError as readBody, and
 * `unsupported_media_type` for what is not named a form; ValidationError for what is none.
 */
export async function readForm(
  { req, res }: RouteContext,
  limits: BodyLimits,
): Promise<readonly FormPart[]> {
  const boundary = boundaryOf(req.headers['content-type'])
  const isPlain = (req.headers['content-encoding'] ?? 'identity').toLowerCase() === 'identity'
  if (boundary === null || !isPlain)
    throw new ApiError(
      'unsupported_media_type',
      `Expected content-type multipart/form-data with a boundary, and no content-encoding, got ${shownType(req.headers['content-type'])}`,
    )
  const body = await readBody(req, res, limits)
  return await forms.run(() => parseForm(body, boundary))
}

/** One form is parsed at a time, so that hostile ones leave the others their turns. */
const forms = createSerialQueue()

/**
 * Boundary in a `multipart/form-data` content type (RFC 2046 section 5.1.1), or null when it is
 * none.
 */
export function boundaryOf(contentType: string | undefined): string | null {
  const [, quoted, token] = CONTENT_TYPE.exec(contentType ?? '') ?? []
  return quoted ?? token ?? null
}

const CONTENT_TYPE =
  /^\s*multipart\/form-data\s*;(?:[^"]*;)?\s*boundary=(?:"([\w'()+,./:=? -]{0,69}[\w'()+,./:=?-])"|([\w'+.-]{1,70}))\s*(?:;.*)?$/i

/**
 * Parts of a form (RFC 7578). Its frame is checked first, since the parser bounds neither the
 * headers of a part nor what they cost it; then koa-body splits it, into memory of the form's size.
 * Throws ValidationError for what is no form.
 */
export async function parseForm(body: Buffer, boundary: string): Promise<readonly FormPart[]> {
  const form = frameOf(body, boundary)
  if (isChopped(form))
    throw fault(`at most one carriage return in ${RETURN_DISTANCE_MIN} bytes, on average`)
  const source = Object.assign(Readable.from(slicesOf(form)), {
    headers: {
      'content-type': `multipart/form-data; boundary="${boundary}"`,
      'content-length': String(form.length),
    },
  })
  const sink = createSink(form.length)
  const parser = koaBody({
    ...{ multipart: true, json: false, urlencoded: false, text: false, patchKoa: false },
    // The other parsers take a boundary with their name in it for their type; binary texts are the
    // bytes.
    formidable: { enabledPlugins: [multipart], encoding: 'binary', onPart: sink.take },
  })
  try {
    // The parser asks nothing else of a context.
    await parser(
      { method: 'POST', is: () => 'multipart', req: source } as unknown as Context,
      async () => {},
    )
  } catch (error) {
    if (error instanceof Error && 'httpCode' in error)
      throw fault('headers of letters, hyphens and values')
    throw error
  } finally {
    source.destroy()
  }
  return sink.parts.map(({ headers, bytes }) => ({ ...describePart(headers), bytes }))
}

/**
 * The form from its first boundary to its last, as it is given to the parser, which knows no blanks
 * after a boundary. Throws ValidationError for a form that does not begin and end with its
 * boundary, and for too many parts or headers.
 */
function frameOf(body: Buffer, boundary: string): Buffer {
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1')
  // Before the first delimiter stands no line break.
  if (body.indexOf(delimiter.subarray(2)) !== 0) throw fault('a form that begins with its boundary')
  const pieces: Buffer[] = []
  let from = 0
  let at = delimiter.length - 2
  for (let parts = 0; !body.subarray(at, at + 2).equals(DASHES); parts++) {
    if (parts >= PARTS_MAX) throw fault(`at most ${PARTS_MAX} parts`)
    pieces.push(body.subarray(from, at))
    from = skipBlanks(body, at)
    const start = from + LINE_BREAK.length
    if (!body.subarray(from, start).equals(LINE_BREAK))
      throw fault('a line break after each boundary')
    const end = body.indexOf(delimiter, from)
    if (end < 0) throw fault('a form that ends with its boundary')
    const headers = body.subarray(
      start,
      Math.min(start + PART_HEADERS_BYTES_MAX, Math.max(start, end)),
    )
    const length = headers.indexOf(HEADERS_END)
    if (length < 0) throw fault(`at most ${PART_HEADERS_BYTES_MAX} bytes of headers in each part`)
    // The parser takes a line without a colon for the end of the headers.
    if (!HEADER_LINES.test(headers.toString('latin1', 0, length)))
      throw fault('headers of letters, hyphens and values')
    at = end + delimiter.length
  }
  const hasBlanks = pieces.reduce((bytes, piece) => bytes + piece.length, 0) < from
  return hasBlanks
    ? Buffer.concat([...pieces, body.subarray(from, at + DASHES.length)])
    : body.subarray(0, at + DASHES.length)
}

const DASHES = Buffer.from('--')
const LINE_BREAK = Buffer.from('\r\n')
const HEADERS_END = Buffer.from('\r\n\r\n')
const HEADER_LINES = /^[A-Za-z-]+:[^\r\n]*(\r\n[A-Za-z-]+:[^\r\n]*)*$/

function skipBlanks(body: Buffer, at: number): number {
  let end = at
  while (body[end] === 0x20 || body[end] === 0x09) end++
  return end
}

function isChopped(form: Buffer): boolean {
  let returns = 0
  for (let at = form.indexOf('\r'); at >= 0; at = form.indexOf('\r', at + 1))
    if (++returns > RETURNS_FREE && at < (returns - RETURNS_FREE) * RETURN_DISTANCE_MIN) return true
  return false
}

/** Other calls have their turns between two slices: a hostile form takes the parser a second. */
async function* slicesOf(form: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < form.length; at += SLICE_BYTES) {
    yield form.subarray(at, at + SLICE_BYTES)
    await nextTurn()
  }
}

/** As they come from a socket. */
const SLICE_BYTES = 64 * 1024

type RawPart = { readonly headers: Readonly<Record<string, string>>; readonly bytes: Uint8Array }

/** Keeps the parts of a form of so many bytes. What the parser gives of one is only lent. */
function createSink(bytesMax: number): {
  readonly parts: readonly RawPart[]
  readonly take: (part: Part) => void
} {
  const memory = Buffer.allocUnsafeSlow(bytesMax)
  const parts: RawPart[] = []
  let at = 0
  const take = (part: Part) => {
    const start = at
    part.on('data', (chunk: Buffer) => {
      at += chunk.copy(memory, at)
    })
    // Its type leaves the headers out.
    const { headers } = part as Part & Pick<RawPart, 'headers'>
    part.on('end', () => parts.push({ headers, bytes: memory.subarray(start, at) }))
  }
  return { parts, take }
}

function describePart(headers: RawPart['headers']): Pick<FormPart, 'name' | 'filename'> {
  const disposition = decode(headers['content-disposition'] ?? '')
  const name = parameterOf(disposition, 'name')
  if (!/^\s*form-data\s*;/i.test(disposition) || name === null) throw fault('a name for each part')
  if (!PLAIN_ENCODINGS.test(headers['content-transfer-encoding']?.trim() ?? ''))
    throw fault('parts without a transfer encoding')
  return { name, filename: parameterOf(disposition, 'filename') }
}

const PLAIN_ENCODINGS = /^(|binary|7bit|8bit)$/i

/**
 * A quoted parameter; browsers write the quote, and line breaks, in percents (HTML,
 * multipart/form-data encoding algorithm).
 */
function parameterOf(header: string, name: string): string | null {
  const [, quoted, token] =
    new RegExp(`;\\s*${name}=(?:"([^"]*)"|([^\\s";]+))`, 'i').exec(header) ?? []
  const value = quoted ?? token
  return value === undefined
    ? null
    : value.replaceAll(/%(22|0D|0A)/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
}

/** Text of a header's bytes, which the parser gives one by one. */
function decode(header: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(header, 'latin1'))
  } catch {
    throw fault('headers in UTF-8')
  }
}

function fault(expected: string): ValidationError {
  return new ValidationError([
    { loc: ['body'], msg: `Expected ${expected}`, type: 'multipart_invalid' },
  ])
}
