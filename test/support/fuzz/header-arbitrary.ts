import fc from 'fast-check'
import type { Framing, Header } from './fuzz-request.ts'

const printable = fc.string({ unit: 'grapheme-ascii', maxLength: 12 }).map((text) => text.trim())

/** Bytes that cannot end a header's value: all but CR, LF and NUL, in Latin-1. */
const anyValue = fc
  .uint8Array({ maxLength: 24 })
  .map((bytes) =>
    Buffer.from(bytes.filter((byte) => byte !== 10 && byte !== 13 && byte !== 0)).toString(
      'latin1',
    ),
  )

const long = fc.constantFrom(300, 5_000, 20_000).map((length) => 'x'.repeat(length))

/** Right and wrong values of the headers that the service reads, by name in lower case. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  authorization: [
    '',
    'Bearer',
    'Bearer ',
    'Bearer x',
    'Basic YTpi',
    'bearer \xff',
    'Bearer a b',
    `Bearer ${'k'.repeat(513)}`,
  ],
  'content-type': [
    '',
    'application/json',
    'application/json; charset=utf-16',
    'APPLICATION/JSON;charset="UTF-8"',
    'application/json;',
    'application/json, text/html',
    'text/plain',
    '\xff/\xfe',
    'multipart/form-data',
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary="a',
    `multipart/form-data; boundary=${'b'.repeat(71)}`,
  ],
  'content-encoding': ['gzip', 'identity', 'br, gzip', ''],
  accept: ['text/html', '*/*', 'text/event-stream', 'application/json;q=0', ';;;', ''],
  'accept-encoding': ['gzip', 'br', 'identity;q=0', '*;q=0', 'gzip;q=nan', 'deflate, zstd', ''],
  'idempotency-key': ['', 'a', 'a b', '\xe9', 'k'.repeat(255), 'k'.repeat(256), '"quoted"', 'a,b'],
  'fine-tune-authorization': [
    '',
    'Bearer',
    'Bearer x',
    'Basic x',
    'Bearer \xff',
    `Bearer ${'k'.repeat(5_000)}`,
  ],
  'x-request-id': ['', 'mine', '\x1b[2J', 'a\tb', 'r'.repeat(129), '../..'],
  expect: ['100-continue', '200-ok', '', '100-CONTINUE'],
  connection: ['close', 'keep-alive', 'upgrade', 'host', 'te, close', ''],
  upgrade: ['websocket', 'h2c', 'TLS/1.0', ''],
  'sec-websocket-key': ['dGhlIHNhbXBsZSBub25jZQ==', 'x', ''],
  'sec-websocket-version': ['13', '8', '-1', ''],
  host: ['', 'a:b:c', '[::1', 'evil.example', 'a b', '\xff', '@', 'x'.repeat(300)],
  origin: ['null', 'https://evil.example', '', '*'],
  'access-control-request-method': ['POST', 'X', ''],
  range: ['bytes=0-0', 'bytes=-1', 'lines=1'],
  'if-none-match': ['*', '"a"', ''],
  'x-forwarded-for': ['127.0.0.1', 'unknown, a'],
  'x-forwarded-proto': ['https', 'gopher'],
  'x-http-method-override': ['DELETE'],
  te: ['trailers'],
  trailer: ['x'],
  cookie: ['a=b; c', '__proto__=1'],
  'x-stainless-retry-count': ['-1', '9'.repeat(400)],
}

const strange: fc.Arbitrary<Header> = fc.tuple(
  fc.oneof(
    fc.constantFrom('x', '__proto__', 'constructor', 'x-affidavit-call', 'X-API-Key'),
    fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}$/),
  ),
  fc.oneof(printable, anyValue, long),
)

const known: fc.Arbitrary<Header> = fc
  .constantFrom(...Object.keys(VALUES))
  .chain((name) =>
    fc.tuple(
      fc.constant(name),
      fc.oneof(
        { weight: 6, arbitrary: fc.constantFrom(...(VALUES[name] ?? [''])) },
        { weight: 1, arbitrary: anyValue },
      ),
    ),
  )

/**
 * Changes to the headers of a request: each adds a header, or replaces the header of its name
 * (`isInstead`). No change is about the length of the body.
 */
export const headerChanges: fc.Arbitrary<readonly HeaderChange[]> = fc.array(
  fc.record({
    header: fc.oneof({ weight: 4, arbitrary: known }, { weight: 1, arbitrary: strange }),
    isInstead: fc.oneof(
      { weight: 3, arbitrary: fc.constant(true) },
      { weight: 1, arbitrary: fc.constant(false) },
    ),
  }),
  { minLength: 1, maxLength: 4 },
)

export type HeaderChange = { readonly header: Header; readonly isInstead: boolean }

/** The headers after the changes. */
export function changeHeaders(
  headers: readonly Header[],
  changes: readonly HeaderChange[],
): readonly Header[] {
  return changes.reduce<readonly Header[]>((before, { header, isInstead }) => {
    const kept = isInstead
      ? before.filter(([name]) => name.toLowerCase() !== header[0].toLowerCase())
      : before
    return [...kept, header]
  }, headers)
}

const LENGTHS = [
  '0',
  '1',
  '5',
  '-1',
  '+3',
  '0x10',
  '1e3',
  '',
  ' ',
  '3, 3',
  '3,4',
  '99999999',
  '9'.repeat(30),
  'NaN',
  '3 ',
]
const ENCODINGS = [
  'chunked',
  'identity',
  'gzip, chunked',
  'chunked, chunked',
  'chunked, identity',
  'CHUNKED',
  'xchunked',
  '',
]

/** Ways to give the end of a body that contradict the body, or each other. */
export const conflictingFraming: fc.Arbitrary<Framing> = fc
  .array(
    fc.oneof(
      fc.tuple(fc.constantFrom('content-length', 'Content-Length'), fc.constantFrom(...LENGTHS)),
      fc.tuple(
        fc.constantFrom('transfer-encoding', 'Transfer-Encoding', 'transfer-encoding '),
        fc.constantFrom(...ENCODINGS),
      ),
    ),
    { maxLength: 3 },
  )
  .map((headers): Framing => ({ kind: 'conflicting', headers }))
