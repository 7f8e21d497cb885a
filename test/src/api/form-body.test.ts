import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { parseForm } from '#src/api/form-body.ts'
import { boundaryOf, PART_HEADERS_BYTES_MAX, PARTS_MAX } from '#src/api/form-frame.ts'

const parse = (text: string | Buffer, boundary = 'b') =>
  parseForm(typeof text === 'string' ? Buffer.from(text, 'latin1') : text, boundary)
const part = (name: string, body: string) =>
  `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${body}\r\n`
const messageOf = async (text: string) => {
  try {
    await parse(text)
  } catch (error) {
    if (error instanceof ValidationError) return error.detail[0]?.msg
    throw error
  }
  return null
}

it('parseForm gives the parts as they are, line breaks and near boundaries in them included', async () => {
  const body = `${part('a', 'one')}${part('b', '\r\n--\r\n--c--\r\n')}--b--\r\nepilogue`
  expect(
    (await parse(body)).map(({ name, bytes }) => [name, Buffer.from(bytes).toString()]),
  ).toEqual([
    ['a', 'one'],
    ['b', '\r\n--\r\n--c--\r\n'],
  ])
})

it('parseForm reads what FormData of this runtime writes', async () => {
  const bytes = Buffer.from(Array.from({ length: 512 }, (_, index) => index % 256))
  const form = new FormData()
  form.set('prompt', 'zwölf "Füchse"\r\n')
  form.set('image', new Blob([bytes], { type: 'image/png' }), 'f"ü\r\nx.png')
  const reply = new Response(form)
  const boundary = boundaryOf(reply.headers.get('content-type') ?? '') ?? ''
  const parts = await parseForm(Buffer.from(await reply.arrayBuffer()), boundary)
  expect(parts.map(({ name, filename }) => [name, filename])).toEqual([
    ['prompt', null],
    ['image', 'f"ü\r\nx.png'],
  ])
  expect(Buffer.from(parts[0]?.bytes ?? []).toString()).toBe('zwölf "Füchse"\r\n')
  expect(Buffer.from(parts[1]?.bytes ?? [])).toEqual(bytes)
})

it.each([
  ['', 'its boundary at the beginning of a line'],
  ['{"prompt":"x"}', 'its boundary at the beginning of a line'],
  [`x${part('a', 'x').slice(0, -2)}--b--`, 'its boundary at the beginning of a line'],
  [`\r\n--bc\r\n${part('a', 'x')}--b--`, 'a line break after each boundary'],
  ['--b', 'a line break after each boundary'],
  ['--bx\r\n', 'a line break after each boundary'],
  [part('a', 'x'), 'ends with its boundary'],
  [`--b\r\nContent-Disposition: form-data; name="a"\r\n--b--`, 'bytes of headers in each part'],
  [
    `--b\r\nX: ${'a'.repeat(PART_HEADERS_BYTES_MAX)}\r\n\r\nx\r\n--b--`,
    'bytes of headers in each part',
  ],
  ['--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--', 'a name for each part'],
  ['--b\r\nContent-Disposition: attachment; name="a"\r\n\r\nx\r\n--b--', 'a name for each part'],
  [
    '--b\r\nContent-MD5: x\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--',
    'only letters and hyphens in their names',
  ],
  [
    '--b\r\nContent-Disposition: form-data; name="a"; NAME="b"\r\n\r\nx\r\n--b--',
    'each parameter of a part once',
  ],
  [
    '--b\r\nContent-Disposition: form-data; filename="x\\"; name=b"; name="a"\r\n\r\nx\r\n--b--',
    'each parameter of a part once',
  ],
  ['--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--', 'headers in UTF-8'],
  [
    '--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64\r\n\r\nx\r\n--b--',
    'parts without a transfer encoding',
  ],
  [`${part('a', 'x').repeat(PARTS_MAX + 1)}--b--`, `at most ${PARTS_MAX} parts`],
])('parseForm refuses the body %j', async (body, expected) => {
  expect(await messageOf(body)).toContain(expected)
})

it.each(['\r\n', 'This is a form.\r\n', 'a\r\n--\r\nb --b\r\n'])(
  'parseForm skips the text %j before the first boundary',
  async (preamble) => {
    const parts = await parse(`${preamble}${part('a', 'one')}${part('b', 'two')}--b--`)
    expect(parts.map(({ name, bytes }) => [name, Buffer.from(bytes).toString()])).toEqual([
      ['a', 'one'],
      ['b', 'two'],
    ])
  },
)

it.each([
  ['filename="x; name=b.png"; name="a"', 'a', 'x; name=b.png'],
  ['name="a"; filename="x\\"y.png"', 'a', 'x\\"y.png'],
  ['filename="C:\\"; name="a"', 'a', 'C:\\'],
  [`name="a"; filename*=utf-8''my%20photo.png`, 'a', `utf-8''my%20photo.png`],
  [`name="a"; filename*=utf-8''%C3%A9.png; filename="e.png"`, 'a', 'e.png'],
  [`name*=utf-8''b; name="a"`, 'a', null],
])('parseForm reads the names of a part with the parameters %s', async (given, name, filename) => {
  const form = `--b\r\nContent-Disposition: form-data; ${given}\r\n\r\nx\r\n--b--`
  expect(await parse(form)).toEqual([{ name, filename, bytes: Buffer.from('x') }])
})

it('parseForm takes any bytes for a form or refuses them', async () => {
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
  await fc.assert(
    fc.asyncProperty(fc.array(pieces, { maxLength: 30 }), async (text) => {
      expect(['string', 'object']).toContain(typeof (await messageOf(`--b${text.join('')}`)))
    }),
    { numRuns: 300 },
  )
})

const HEAD = Buffer.from('--boundary\r\nContent-Disposition: form-data; name="a"\r\n\r\n')
const formOf = (bytes: Buffer) => Buffer.concat([HEAD, bytes, Buffer.from('\r\n--boundary--')])
const cpuMs = () => process.cpuUsage().user / 1_000

it('parseForm parses 4 MiB of near boundaries, and of headers, in a second of CPU time at most', async () => {
  const near = Buffer.from(`\r\n--bounda${'x'.repeat(246)}`.repeat(16_384))
  const startedAt = cpuMs()
  const [whole] = await parseForm(formOf(near), 'boundary')
  expect(whole?.bytes.length).toBe(near.length)
  await expect(parseForm(Buffer.concat([Buffer.from('--b\r\nX:'), near]), 'b')).rejects.toThrow(
    ValidationError,
  )
  expect(cpuMs() - startedAt).toBeLessThan(1_000)
})

it.each([
  ['carriage returns', Buffer.alloc(4 * 1024 * 1024, '\r')],
  ['near boundaries without anything between them', Buffer.from('\r\n--bounda'.repeat(400_000))],
])('parseForm refuses 4 MiB of %s, which would keep it busy, at once', async (_, bytes) => {
  const form = formOf(bytes)
  const startedAt = cpuMs()
  await expect(parseForm(form, 'boundary')).rejects.toThrow(ValidationError)
  expect(cpuMs() - startedAt).toBeLessThan(1_000)
})

it('parseForm leaves others their turns while it parses what keeps it busy', async () => {
  let turns = 0
  let isParsing = true
  const count = () => {
    turns++
    if (isParsing) setImmediate(count)
  }
  setImmediate(count)
  await parseForm(formOf(Buffer.alloc(4 * 1024 * 1024, `\r${'x'.repeat(79)}`)), 'boundary')
  isParsing = false
  expect(turns).toBeGreaterThanOrEqual(64)
})

it('parseForm refuses a header line without a colon, after which the parser would invent bytes', async () => {
  const form = `--b\r\nContent-Disposition: form-data; name="a"\r\njunk\r\nmore: x\r\n\r\nv\r\n--b--`
  await expect(parse(form)).rejects.toThrow(ValidationError)
})
