import { expect, it } from 'vitest'
import { readEmbeddings } from '#src/embeddings/embedding-answers.ts'

const answerOf = (...numbers: readonly unknown[]) => ({ data: [{ index: 0, embedding: numbers }] })
const read = (answer: unknown, encodingFormat: 'float' | 'base64') =>
  readEmbeddings(answer, { count: 1, encodingFormat }).vectors[0]

it('readEmbeddings gives the largest and smallest numbers of a float32 as they are', () => {
  const largest = 3.4028234663852886e38
  const base64 = JSON.parse(
    read(answerOf(largest, -largest, 1.401298464324817e-45, -0), 'base64') ?? '',
  )
  const bytes = Buffer.from(base64, 'base64')
  expect([0, 4, 8, 12].map((at) => bytes.readFloatLE(at))).toEqual([
    largest,
    -largest,
    1.401298464324817e-45,
    -0,
  ])
})

it('readEmbeddings makes no infinity of a number that is too large for a float32', () => {
  expect(read(answerOf(1e39), 'float')).toBe('[1e+39]')
  expect(() => read(answerOf(0, 1e39), 'base64')).toThrow(
    'expected numbers that a float32 can hold',
  )
})

it.each(['f38=', 'AAAAAAA', 'AADAfw==', 'AACA/w==', '', 'AAAA AAA', '-_-_-_'])(
  'readEmbeddings takes base64 %j, which holds no finite float32s, for a bad answer',
  (embedding) => {
    expect(() => read({ data: [{ index: 0, embedding }] }, 'float')).toThrow('finite numbers')
  },
)
