import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ValidationError } from '../../../src/api/errors.ts'
import { boundaryOf, PART_HEADERS_BYTES_MAX, PARTS_MAX, parseMultipart } from '../../../src/api/multipart.ts'

const parse = (text: string | Buffer, boundary = 'b') =>
  parseMultipart(Buffer.from(text as string, 'latin1'), boundary)
const part = (name: string, body: string) =>
  `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${body}\r\n`
const messageOf = (text: string) => {
  try {
    parse(text)
  } catch (error) {
    if (error instanceof ValidationError) return error.detail[0]?.msg
    throw error
  }
  return null
}

describe('boundaryOf', () => {
  it.each([
    ['multipart/form-data; boundary=abc', 'abc'],
    ['Multipart/Form-Data;boundary="a b"', 'a b'],
    ['multipart/form-data; charset=utf-8; boundary=--x_1; y=z', '--x_1'],
  ])('finds that of %s', (type, boundary) => {
    expect(boundaryOf(type)).toBe(boundary)
  })

  it.each([
    undefined,
    '',
    'application/json',
    'multipart/form-data',
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary=""',
    `multipart/form-data; boundary=${'a'.repeat(71)}`,
    'multipart/mixed; boundary=a',
    'multipart/form-data; boundary="a\r\nb"',
  ])('finds none in %s', (type) => {
    expect(boundaryOf(type)).toBeNull()
  })

  it('reads a hostile header in no time', () => {
    const startedAt = performance.now()
    expect(boundaryOf(`multipart/form-data${'; boundary '.repeat(1_400)}`)).toBeNull()
    expect(performance.now() - startedAt).toBeLessThan(200)
  })
})

describe('parseMultipart', () => {
  it('gives the parts as they are, line breaks and near boundaries in them included', () => {
    const body = `${part('a', 'one')}${part('b', '\r\n--\r\n--c--\r\n')}--b--\r\nepilogue`
    expect(parse(body).map(({ name, bytes }) => [name, Buffer.from(bytes).toString()])).toEqual([
      ['a', 'one'],
      ['b', '\r\n--\r\n--c--\r\n'],
    ])
  })

  it('reads what FormData of this runtime writes', async () => {
    const bytes = Buffer.from(Array.from({ length: 512 }, (_, index) => index % 256))
    const form = new FormData()
    form.set('prompt', 'zwölf "Füchse"\r\n')
    form.set('image', new Blob([bytes], { type: 'image/png' }), 'f"ü\r\nx.png')
    const reply = new Response(form)
    const boundary = boundaryOf(reply.headers.get('content-type') ?? '') ?? ''
    const parts = parseMultipart(Buffer.from(await reply.arrayBuffer()), boundary)
    expect(parts.map(({ name, filename }) => [name, filename])).toEqual([
      ['prompt', null],
      ['image', 'f"ü\r\nx.png'],
    ])
    expect(Buffer.from(parts[0]?.bytes ?? []).toString()).toBe('zwölf "Füchse"\r\n')
    expect(Buffer.from(parts[1]?.bytes ?? [])).toEqual(bytes)
  })

  it('gives an empty part, and no parts at all', () => {
    expect(parse(`${part('a', '')}--b--`)).toMatchObject([{ name: 'a', bytes: Buffer.alloc(0) }])
    expect(parse('--b--')).toEqual([])
  })

  it.each([
    ['', 'begins with its boundary'],
    ['{"prompt":"x"}', 'begins with its boundary'],
    [`\r\n${part('a', 'x')}--b--`, 'begins with its boundary'],
    ['--b', 'a line break after each boundary'],
    ['--bx\r\n', 'a line break after each boundary'],
    [part('a', 'x'), 'ends with its boundary'],
    [`--b\r\nContent-Disposition: form-data; name="a"\r\n--b--`, 'bytes of headers in each part'],
    [`--b\r\nX: ${'a'.repeat(PART_HEADERS_BYTES_MAX)}\r\n\r\nx\r\n--b--`, 'bytes of headers in each part'],
    ['--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--', 'a name for each part'],
    ['--b\r\nContent-Disposition: attachment; name="a"\r\n\r\nx\r\n--b--', 'a name for each part'],
    ['--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--', 'headers in UTF-8'],
    [
      '--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64\r\n\r\nx\r\n--b--',
      'parts without a transfer encoding',
    ],
    [`${part('a', 'x').repeat(PARTS_MAX + 1)}--b--`, `at most ${PARTS_MAX} parts`],
  ])('refuses %j', (body, expected) => {
    expect(messageOf(body)).toContain(expected)
  })

  it('takes any bytes for a form or for none', () => {
    const pieces = fc.constantFrom(
      '--b',
      '--',
      '\r\n',
      'Content-Disposition: form-data; name="a"',
      'x',
      '\n',
      ';',
      '"',
    )
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 30 }), (text) => {
        expect(['string', 'object']).toContain(typeof messageOf(`--b${text.join('')}`))
      }),
      { numRuns: 3_000 },
    )
  })

  it('parses 25 MiB of near boundaries, and of headers, in well under a second', () => {
    const near = Buffer.from('\r\n--bounda'.repeat(2_600_000))
    const body = Buffer.concat([
      Buffer.from('--boundary\r\nContent-Disposition: form-data; name="a"\r\n\r\n'),
      near,
      Buffer.from('\r\n--boundary--'),
    ])
    const startedAt = performance.now()
    expect(parseMultipart(body, 'boundary')[0]?.bytes.length).toBe(near.length)
    expect(() => parseMultipart(Buffer.concat([Buffer.from('--b\r\nX:'), near]), 'b')).toThrow(
      ValidationError,
    )
    expect(performance.now() - startedAt).toBeLessThan(1_000)
  })
})
