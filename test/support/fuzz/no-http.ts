import fc from 'fast-check'

/** Bytes that only begin like HTTP, or not even that: another protocol, half a head, garbage. */
export const noHttp: fc.Arbitrary<Uint8Array> = fc
  .array(
    fc.oneof(
      fc.constantFrom('GET / HTTP/1.1\r\n', 'POST', 'HTTP/', '2.0', ' ', '\r\n', '\n', ':', '\0'),
      fc.constantFrom(
        'host: a\r\n',
        'content-length: 3\r\n',
        'transfer-encoding: chunked\r\n',
        '\t: \r\n',
      ),
      fc.constantFrom(
        '\x16\x03\x01\x02\0',
        'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
        'PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n',
      ),
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
    ),
    { minLength: 1, maxLength: 8 },
  )
  .map((pieces) => Buffer.from(pieces.join(''), 'latin1'))
