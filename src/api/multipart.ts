import { ValidationError } from './errors.ts'

/** Parts of one form: the interface's have seven. */
export const PARTS_MAX = 32
/** Bytes of the headers of one part. */
export const PART_HEADERS_BYTES_MAX = 8 * 1024

/** One part of a form. Everything in it was written by the caller. */
export type FormPart = {
  readonly name: string
  /** Null for a part that is no file. */
  readonly filename: string | null
  /** A view of the form's bytes, not a copy. */
  readonly bytes: Uint8Array
}

/** Boundary in a `multipart/form-data` content type (RFC 2046 section 5.1.1), or null when it is none. */
export function boundaryOf(contentType: string | undefined): string | null {
  const [, quoted, token] = CONTENT_TYPE.exec(contentType ?? '') ?? []
  return quoted ?? token ?? null
}

const CONTENT_TYPE =
  /^\s*multipart\/form-data\s*;(?:[^"]*;)?\s*boundary=(?:"([\w'()+,./:=? -]{0,69}[\w'()+,./:=?-])"|([\w'+.-]{1,70}))\s*(?:;.*)?$/i

/**
 * Parts of a form (RFC 7578), in their order. Works on the whole body and not while it arrives: it is bounded, has to be held anyway, and
 * so the cost is that of a few searches, whatever the body is. Throws ValidationError for what is no form.
 */
export function parseMultipart(body: Buffer, boundary: string): readonly FormPart[] {
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1')
  // Before the first delimiter stands no line break.
  if (body.indexOf(delimiter.subarray(2)) !== 0) throw fault('a form that begins with its boundary')
  const parts: FormPart[] = []
  let at = delimiter.length - 2
  while (!body.subarray(at, at + 2).equals(DASHES)) {
    if (parts.length >= PARTS_MAX) throw fault(`at most ${PARTS_MAX} parts`)
    const start = skipLineBreak(body, at)
    const end = body.indexOf(delimiter, start - LINE_BREAK.length)
    if (end < 0) throw fault('a form that ends with its boundary')
    parts.push(parsePart(body.subarray(start, Math.max(start, end))))
    at = end + delimiter.length
  }
  return parts
}

const DASHES = Buffer.from('--')
const LINE_BREAK = Buffer.from('\r\n')
const HEADERS_END = Buffer.from('\r\n\r\n')

/** A boundary may have blanks after it. */
function skipLineBreak(body: Buffer, at: number): number {
  let start = at
  while (body[start] === 0x20 || body[start] === 0x09) start++
  if (!body.subarray(start, start + 2).equals(LINE_BREAK)) throw fault('a line break after each boundary')
  return start + 2
}

function parsePart(part: Buffer): FormPart {
  const end = part.subarray(0, PART_HEADERS_BYTES_MAX).indexOf(HEADERS_END)
  if (end < 0) throw fault(`at most ${PART_HEADERS_BYTES_MAX} bytes of headers in each part`)
  const headers = decode(part.subarray(0, end)).split('\r\n')
  const disposition = headerOf(headers, 'content-disposition')
  const name = parameterOf(disposition, 'name')
  if (!/^form-data\s*;/i.test(disposition) || name === null) throw fault('a name for each part')
  if (!PLAIN_ENCODINGS.test(headerOf(headers, 'content-transfer-encoding')))
    throw fault('parts without a transfer encoding')
  return {
    name,
    filename: parameterOf(disposition, 'filename'),
    bytes: part.subarray(end + HEADERS_END.length),
  }
}

const PLAIN_ENCODINGS = /^(|binary|7bit|8bit)$/i

function headerOf(headers: readonly string[], name: string): string {
  const line = headers.find((header) => header.toLowerCase().startsWith(`${name}:`))
  return line === undefined ? '' : line.slice(name.length + 1).trim()
}

/** A quoted parameter; browsers write the quote, and line breaks, in percents (HTML, multipart/form-data encoding algorithm). */
function parameterOf(header: string, name: string): string | null {
  const [, quoted, token] = new RegExp(`;\\s*${name}=(?:"([^"]*)"|([^\\s";]+))`, 'i').exec(header) ?? []
  const value = quoted ?? token
  return value === undefined
    ? null
    : value.replaceAll(/%(22|0D|0A)/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw fault('headers in UTF-8')
  }
}

function fault(expected: string): ValidationError {
  return new ValidationError([{ loc: ['body'], msg: `Expected ${expected}`, type: 'multipart_invalid' }])
}
