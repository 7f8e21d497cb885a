import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeImageFrame, imageFrame, imageFrameBytes } from '#src/nodes/protocol/frames.ts'

const SMALL_MAX = 64 * 1024
const decode = (frame: unknown) =>
  decodeImageFrame(
    Buffer.from(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    SMALL_MAX,
  )
const large = (text: string) => text.repeat(Math.ceil((SMALL_MAX + 1) / text.length))

const request = { prompt: 'a "fox" in Köln', image: null, n: 2, size: '512x512' }

it('an image frame is as the public client reads it', () => {
  expect(JSON.parse(imageFrame('r1', request))).toEqual({ request_id: 'r1', ...request })
})

it('an image frame is at most as large as the size computed before it was written', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom(...'\u0001\u007f"\\aé一\u{1f600}'), maxLength: 50 }),
      fc.uint8Array({ maxLength: 50 }),
      (prompt, bytes) => {
        const image = Buffer.from(bytes).toString('base64')
        const written = Buffer.byteLength(
          imageFrame('r'.repeat(64), { ...request, prompt, image, n: 10 }),
        )
        expect(imageFrameBytes({ prompt, imageBytes: bytes.length })).toBeGreaterThanOrEqual(
          written,
        )
      },
    ),
    { numRuns: 30 },
  )
})

it('decodeImageFrame reads images, and an error', () => {
  expect(decode({ request_id: 'r1', images: ['aGk='], error: null })).toEqual({
    kind: 'image',
    requestId: 'r1',
    images: ['aGk='],
    error: null,
    statusCode: null,
    retryAfterSeconds: null,
  })
  const busy = { request_id: 'r1', images: [], error: 'busy', status_code: 429, retry_after: 9 }
  expect(decode(busy)).toMatchObject({ error: 'busy', statusCode: 429, retryAfterSeconds: 9 })
  const wrong = { ...busy, status_code: 200, retry_after: -1 }
  expect(decode(wrong)).toMatchObject({
    error: 'busy',
    statusCode: null,
    retryAfterSeconds: null,
  })
  expect(decode({ request_id: 'r1', images: [], error: 'out of\nmemory\u202e' })).toMatchObject({
    images: [],
    error: 'out of memory ',
  })
})

it.each([
  ['null', null],
  ['a text', 'aGk='],
  ['objects', [{ b64_json: 'aGk=' }]],
  ['missing', undefined],
])('decodeImageFrame takes images that are %s for missing', (_, images) => {
  expect(decode({ request_id: 'r1', images })).toMatchObject({
    kind: 'image',
    images: null,
    error: null,
  })
})

it('decodeImageFrame reads control frames and strays as on every connection', () => {
  expect(decode({ protocol: 'ping-pong', data: {} })).toMatchObject({ kind: 'control' })
  expect(decode({ some: 'thing' })).toEqual({ kind: 'stray' })
  expect(decode({ request_id: 'r'.repeat(65), images: [] })).toEqual({ kind: 'stray' })
  expect(decode('[]')).toMatchObject({ kind: 'malformed' })
})

it('decodeImageFrame reads a large frame of images', () => {
  const images = [large('iVBO'), large('/+==')]
  expect(decode({ request_id: 'r1', images, error: null })).toMatchObject({
    kind: 'image',
    images,
  })
})

it.each([
  ['brackets', large('[')],
  ['empty objects', `[${large('{},')}{}]`],
  ['short texts', `{"request_id":"r1","images":[${large('"a",')}"a"]}`],
  ['blanks', `{"request_id":"r1","images":[],"error":${large(' ')}null}`],
  ['quotes in a text', `{"request_id":"r1","images":["${large('\\"')}"]}`],
  ['a text without an end', `{"request_id":"r1","images":["${large('a')}`],
  ['no id', JSON.stringify({ images: [large('a')] })],
  ['a control frame', JSON.stringify({ protocol: 'ping-pong', data: { nonce: large('a') } })],
])('decodeImageFrame does not parse a large frame of %s', (_, text) => {
  expect(text.length).toBeGreaterThan(SMALL_MAX)
  expect(decode(text)).toMatchObject({ kind: 'malformed' })
})

it('decodeImageFrame never throws, whatever the bytes are', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      expect(decode(text).kind).toMatch(/^(stray|malformed|control|image)$/)
    }),
  )
})
