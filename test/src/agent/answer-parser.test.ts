import fc from 'fast-check'
import { expect, it } from 'vitest'
import { EventTooLargeError } from '#attestation/dialects/chat/event-parser.ts'
import { type AnswerChunk, AnswerParser } from '#src/agent/answer-parser.ts'
import { BackendError, refusalError } from '#src/agent/backend-error.ts'
import { encodeChunk } from '#src/nodes/protocol/frames.ts'
import { textChunk, usageChunk } from '../../support/scripted-backend.ts'

function streamOf(events: readonly (object | string)[]): Buffer {
  const texts = events.map(
    (event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`,
  )
  return Buffer.from(texts.join(''))
}

const choiceOf = (members: object) => ({ choices: [{ delta: { content: 'a' }, ...members }] })

/** What one packet and the end amount to. */
function parse(packet: Uint8Array): {
  readonly chunks: readonly AnswerChunk[]
  readonly fault: Error | null
} {
  const parser = new AnswerParser()
  const pushed = parser.push(packet)
  if (pushed.fault !== null) return pushed
  const { chunks, fault } = parser.end()
  return { chunks: [...pushed.chunks, ...chunks], fault }
}

async function read(...events: readonly (object | string)[]): Promise<readonly unknown[]> {
  const { chunks, fault } = parse(streamOf(events))
  if (fault !== null) throw fault
  expect(chunks.map(({ text: written }) => JSON.parse(written))).toEqual(
    chunks.map(({ chunk }) => chunk),
  )
  return chunks.map(({ chunk }) => chunk)
}

it('AnswerParser gives the chunks as they came, the usage last', async () => {
  const chunks = [textChunk('a'), textChunk('', 'stop'), usageChunk(1)]
  expect(await read(...chunks, '[DONE]')).toEqual(chunks)
})

it('AnswerParser keeps the usage for the end when the backend sends it earlier, or with a choice', async () => {
  const last = { ...textChunk('', 'stop'), usage: { completion_tokens: 1 } }
  expect(await read(usageChunk(1), textChunk('a'), last, '[DONE]')).toEqual([
    textChunk('a'),
    textChunk('', 'stop'),
    { ...textChunk(''), choices: [], usage: { completion_tokens: 1 } },
  ])
})

it('AnswerParser takes a stream without end mark as whole when every choice has ended', async () => {
  expect(await read(textChunk('a'), textChunk('', 'stop'))).toHaveLength(2)
  const second = { choices: [{ index: 1, delta: {}, finish_reason: null }] }
  await expect(read(textChunk('a'), second, textChunk('', 'stop'))).rejects.toThrow('broke off')
})

it.each([
  [
    'a chunk of a choice after its end',
    [
      textChunk('a'),
      textChunk('', 'stop'),
      { choices: [{ index: 0, delta: {}, finish_reason: null }], usage: {} },
    ],
  ],
  ['a choice that has an index only at its end', [choiceOf({}), textChunk('', 'stop')]],
  ['an index that is null', [choiceOf({ index: null }), textChunk('', 'stop')]],
  [
    'an index that is missing at the end',
    [textChunk('a'), { choices: [{ delta: {}, finish_reason: 'stop' }] }],
  ],
])('AnswerParser takes a stream without end mark as whole with %s', async (_, events) => {
  expect((await read(...events)).length).toBeGreaterThan(1)
})

it.each(['{}', '{"type":"ping"}', '{"choices":null}'])(
  'AnswerParser skips %s, with which a backend keeps the connection open',
  async (object) => {
    const chunks = [textChunk('a'), textChunk('', 'stop')]
    expect(await read(object, ...chunks.slice(0, 1), object, ...chunks.slice(1), object)).toEqual(
      chunks,
    )
    await expect(read(object, '[DONE]')).rejects.toThrow('something that is not a chunk')
  },
)

it.each([
  ['no events at all', []],
  ['an end in mid-answer', [textChunk('a')]],
  ['usage alone without end mark', [usageChunk(1)]],
])('AnswerParser throws for %s', async (_, events) => {
  await expect(read(...events)).rejects.toThrow('the backend broke off')
})

it.each([
  ['text that is no JSON', 'hello'],
  ['an array', '[1]'],
  ['an object without choices', '{"a":1}'],
  ['choices that are no list', '{"choices":{}}'],
  ['a choice that is not an object', '{"choices":[1]}'],
])('AnswerParser throws BackendError for %s', async (_, event) => {
  await expect(read(event, '[DONE]')).rejects.toThrow(BackendError)
})

it('AnswerParser throws the error that a backend reports in the stream, with its code', async () => {
  await expect(read('{"error":{"message":"too long","code":400}}')).rejects.toMatchObject({
    message: 'too long',
    statusCode: 400,
  })
  await expect(read('{"code":500,"message":"oh","type":"server_error"}')).rejects.toThrow('oh')
  await expect(read('{"detail":"out of memory"}')).rejects.toThrow('out of memory')
})

it.each([
  ['an error', 'data: {"error":{"message":"no"}}\n\n', BackendError],
  ['garbage', 'data: {{{\n\n', BackendError],
  ['an event over the limit', `data: ${'x'.repeat(1024 * 1024)}`, EventTooLargeError],
  ['a line that the backend broke off in', 'data: {"choices":[{"ind', BackendError],
  ['a chunk, and no end', `data: ${JSON.stringify(textChunk('c'))}`, BackendError],
])('AnswerParser gives what came in the same packet before %s', (_, end, fault) => {
  const packet = Buffer.concat([streamOf([textChunk('a'), textChunk('b')]), Buffer.from(end)])
  const step = parse(packet)
  expect(step.chunks.slice(0, 2).map(({ chunk }) => chunk)).toEqual([
    textChunk('a'),
    textChunk('b'),
  ])
  expect(step.chunks).toHaveLength(end.includes('"c"') ? 3 : 2)
  expect(step.fault).toBeInstanceOf(fault)
})

const frameOf = (text: string) => JSON.parse(encodeChunk('r1', text))

it.each([
  ['members that come twice', '{"choices":[],"choices":[{"index":0,"delta":{}}],"status":3}'],
  ['lines of its own', '{"choices":\r\ndata: [{"index":0,\ndata: "delta":{}}]\ndata: }'],
  [
    'separators and lone surrogates',
    '{"choices":[{"index":0,"delta":{"content":"\u2028\\ud800\u0085"}}]}',
  ],
  ['blanks around it', ' \t{"choices":[{"index":0,"delta":{}}]}\t '],
  ['numbers beyond all bounds', '{"choices":[{"index":0,"delta":{"x":1e999,"y":-0}}]}'],
  ['a member called __proto__', '{"__proto__":{"status":3},"choices":[{"index":0,"delta":{}}]}'],
])('a frame that carries backend data with %s is one object of the protocol', (_, data) => {
  const { chunks } = parse(Buffer.from(`data: ${data}\n\ndata: [DONE]\n\n`))
  for (const { chunk, text } of chunks)
    expect(frameOf(text)).toEqual({ request_id: 'r1', error: null, chunk, status: 1 })
  expect(chunks).toHaveLength(1)
})

it.each([
  ['a member for the frame', '{"choices":[{}]},"status":3,"x":{"choices":[{}]}'],
  ['two objects', '{"choices":[{}]}{"choices":[{}]}'],
  ['an object that does not end', '{"choices":[{}]'],
  ['an end too many', '{"choices":[{}]}}'],
  ['a comment', '{"choices":[{}]} // x'],
  ['a byte order mark', '\uFEFF{"choices":[{}]}'],
  ['a blank that is none of JSON', '\u00a0{"choices":[{}]}'],
  ['a raw control character', '{"choices":[{"x":"\u0001"}]}'],
])('no frame is made of backend data with %s', (_, data) => {
  expect(parse(Buffer.from(`data: ${data}\n\ndata: [DONE]\n\n`))).toEqual({
    chunks: [],
    fault: expect.any(BackendError),
  })
})

it('a frame that carries backend data is one object whatever the bytes of a stream are', () => {
  const piece = fc.constantFrom(
    ...[
      'data: ',
      '{"choices":[{"index":0',
      ',"delta":{}',
      '}]',
      '}',
      '{',
      '"',
      '\\',
      '\n',
      '\n\n',
      '\r',
    ],
    ...[',"usage":{}', ',"status":3', 'null', '\u2028', '\ufeff', ' ', '[DONE]', '[', ']', ','],
    'data: {"choices":[{"index":0,"delta":{}}]}\n\n',
  )
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
      for (const { chunk, text } of parse(Buffer.from(pieces.join(''))).chunks) {
        const frame = frameOf(text)
        expect(Object.keys(frame)).toEqual(['request_id', 'error', 'chunk', 'status'])
        expect(frame).toEqual({ request_id: 'r1', error: null, chunk, status: 1 })
      }
    }),
    { numRuns: 500 },
  )
})

const refuse = (body: string, status: number, headers = {}) =>
  refusalError({ status, headers, body: Buffer.from(body), secret: 'sk-node' })

it.each([
  ['{"error":{"message":"m"}}', 422, 'm', 422],
  ['{"error":"m"}', 404, 'm', 404],
  ['{"message":"m","code":400}', 500, 'm', 400],
  ['{"detail":"m"}', 429, 'm', 429],
  ['', 503, 'the backend answered with status 503', 500],
  ['{"error":{"message":"m"}}', 418, 'm', 500],
  ['{"error":{"message":"no key sk-node"}}', 401, 'no key [credential]', 401],
] as const)('refusalError reads %s with status %d', (body, status, message, statusCode) => {
  expect(refuse(body, status)).toMatchObject({ message, statusCode })
})

it.each([503, 529])(
  'refusalError tells a status %d with a wait as a backend at its limit',
  (status) => {
    const busy = refuse('{"error":"server busy"}', status, { 'retry-after': '20' })
    expect(busy).toMatchObject({ message: 'server busy', statusCode: 429, retryAfterSeconds: 20 })
    expect(refuse('{}', status)).toMatchObject({ statusCode: 500, retryAfterSeconds: null })
  },
)
