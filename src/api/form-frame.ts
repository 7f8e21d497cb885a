import { isUtf8 } from 'node:buffer'
import { ValidationError } from './errors.ts'

/** Maximum number of parts in a form. The interface defines only seven parts. */
export const PARTS_MAX = 32
export const PART_HEADERS_BYTES_MAX = 8 * 1024

/**
 * Smallest average distance between carriage returns, bytes. The parser makes two chunks at each
 * carriage return, so 25 MiB of carriage returns would take ten seconds. In an image, one byte in
 * 256 is a carriage return. The first RETURNS_FREE carriage returns may have any distance.
 */
const RETURN_DISTANCE_MIN = 64
const RETURNS_FREE = 2_048

export type PartNames = {
  readonly name: string
  /** Null if the part is not a file. */
  readonly filename: string | null
}

/**
 * Returns the boundary of a `multipart/form-data` content type (RFC 2046 section 5.1.1), or null.
 */
export function boundaryOf(contentType: string | undefined): string | null {
  const [, quoted, token] = CONTENT_TYPE.exec(contentType ?? '') ?? []
  return quoted ?? token ?? null
}

const CONTENT_TYPE =
  /^\s*multipart\/form-data\s*;(?:(?:[^";]|"[^"\\]*")*;)*\s*boundary=(?:"([\w'()+,./:=? -]{0,69}[\w'()+,./:=?-])"|([\w'+.-]{1,70}))\s*(?:;.*)?$/i

/**
 * Checks a form before the parser runs, because the parser does not limit its work, the number of
 * parts or their headers. Returns the names of the parts, and the form for the parser, in pieces.
 * Removes text before the first boundary and blanks after boundaries, because the parser does not
 * accept them. Throws ValidationError.
 */
export function checkForm(
  body: Buffer,
  boundary: string,
): { readonly parts: readonly PartNames[]; readonly pieces: readonly Buffer[] } {
  const delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1')
  const parts: PartNames[] = []
  const pieces: Buffer[] = []
  let from = startOfForm(body, delimiter)
  let at = from + delimiter.length - 2
  while (body.toString('latin1', at, at + 2) !== '--') {
    if (parts.length >= PARTS_MAX) throw invalidForm(`at most ${PARTS_MAX} parts`)
    pieces.push(body.subarray(from, at))
    from = at
    while (body[from] === 0x20 || body[from] === 0x09) from++
    if (body.toString('latin1', from, from + 2) !== '\r\n')
      throw invalidForm('a line break after each boundary')
    const end = body.indexOf(delimiter, from)
    if (end < 0) throw invalidForm('a form that ends with its boundary')
    const start = from + 2
    const headers = body.subarray(start, Math.min(start + PART_HEADERS_BYTES_MAX, end))
    parts.push(namesOf(headers))
    at = end + delimiter.length
  }
  pieces.push(body.subarray(from, at + 2))
  refuseChopped(body.subarray(0, at))
  return { parts, pieces }
}

/** A form may have a preamble, which ends with a line break (RFC 2046 section 5.1.1). */
function startOfForm(body: Buffer, delimiter: Buffer): number {
  const first = delimiter.subarray(2)
  if (body.subarray(0, first.length).equals(first)) return 0
  const lineBreak = body.indexOf(delimiter)
  if (lineBreak < 0) throw invalidForm('a form with its boundary at the beginning of a line')
  return lineBreak + 2
}

/**
 * The parser would take a line without a colon for the end of the headers. It refuses digits in the
 * name of a header.
 */
const HEADERS = /^(?:[A-Za-z-]+:[^\r\n]*\r\n)+(?=\r\n)/

function refuseChopped(form: Buffer): void {
  let returns = 0
  for (let at = form.indexOf('\r'); at >= 0; at = form.indexOf('\r', at + 1))
    if (++returns > RETURNS_FREE && at < (returns - RETURNS_FREE) * RETURN_DISTANCE_MIN)
      throw invalidForm(`at most one carriage return in ${RETURN_DISTANCE_MIN} bytes, on average`)
}

function namesOf(head: Buffer): PartNames {
  const [bytes] = HEADERS.exec(head.toString('latin1')) ?? []
  if (bytes === undefined)
    throw invalidForm(
      `at most ${PART_HEADERS_BYTES_MAX} bytes of headers in each part, and only letters and hyphens in their names`,
    )
  const own = head.subarray(0, bytes.length)
  if (!isUtf8(own)) throw invalidForm('headers in UTF-8')
  const headers = own.toString()
  const parameters = parametersOf(headers)
  const name = parameters.get('name')
  if (name === undefined) throw invalidForm('a name for each part')
  if (OTHER_ENCODING.test(headers)) throw invalidForm('parts without a transfer encoding')
  // Some clients send only the extended form of RFC 8187.
  return { name, filename: parameters.get('filename') ?? parameters.get('filename*') ?? null }
}

const OTHER_ENCODING = /^content-transfer-encoding:(?![ \t]*(?:binary|7bit|8bit)?[ \t]*$)/im

/**
 * Browsers write quotes and line breaks in a parameter as percent codes (HTML, multipart/form-data
 * encoding algorithm).
 */
function parametersOf(headers: string): ReadonlyMap<string, string> {
  const [, disposition = ''] = DISPOSITION.exec(headers) ?? []
  const parameters = new Map<string, string>()
  for (const [, given = '', quoted, token = ''] of disposition.matchAll(PARAMETER)) {
    const name = given.toLowerCase()
    // Readers disagree on which of two values counts.
    if (parameters.has(name)) throw invalidForm('each parameter of a part once')
    const value = quoted ?? token
    parameters.set(name, value.replaceAll(/%(?:22|0D|0A)/gi, decodeURIComponent))
  }
  return parameters
}

/**
 * Some clients escape a quote in a value with a backslash, but browsers write a backslash as it is.
 * A quote after a backslash ends the value only if the parameter ends there too.
 */
const PARAMETER = /;\s*([\w*-]+)=(?:"((?:[^"]|(?<=\\)"(?!\s*(?:;|$)))*)"|([^\s";]+))/g

const DISPOSITION = /^content-disposition:[ \t]*form-data[ \t]*(;.*)$/im

export function invalidForm(expected: string): ValidationError {
  return new ValidationError([
    { loc: ['body'], msg: `Expected ${expected}`, type: 'multipart_invalid' },
  ])
}
