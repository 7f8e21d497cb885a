import { describe, expect, it } from 'vitest'
import { embed } from '#src/local/demo/embeddings.ts'
import { DemoError } from '#src/local/demo/request.ts'

type Answer = { readonly data: readonly { readonly index: number; readonly embedding: unknown }[] }

const ask = (request: object) =>
  embed(Buffer.from(JSON.stringify({ model: 'demo/embedding', ...request }))) as Answer & {
    usage: unknown
  }

function vectorsOf(request: object): readonly (readonly number[])[] {
  return ask(request).data.map(({ embedding }) => embedding as readonly number[])
}

const product = (left: readonly number[] = [], right: readonly number[] = []) =>
  left.reduce((sum, value, index) => sum + value * (right[index] ?? 0), 0)

describe('the demonstration of embeddings', () => {
  it('the demonstration of embeddings gives one text one vector of length 1, and similar texts nearer ones', () => {
    const input = ['a red fox runs', 'a red fox sleeps', 'quantum chromodynamics']
    const [fox, otherFox, physics] = vectorsOf({ input })
    expect(vectorsOf({ input: 'a red fox runs' })[0]).toEqual(fox)
    expect(product(fox, fox)).toBeCloseTo(1, 5)
    expect(product(fox, otherFox)).toBeGreaterThan(product(fox, physics) + 0.3)
  })

  it('the demonstration of embeddings takes tokens, alone and in lists, and counts them', () => {
    expect(ask({ input: [1, 2, 3] })).toMatchObject({
      data: [{ index: 0 }],
      usage: { prompt_tokens: 3 },
    })
    expect(ask({ input: [[1, 2], [3]] })).toMatchObject({ data: [{ index: 0 }, { index: 1 }] })
    expect(vectorsOf({ input: [[1, 2], [3]] })[0]).toEqual(vectorsOf({ input: [1, 2] })[0])
  })

  it('a vector has as many numbers as are asked for, in base64 the same ones', () => {
    const [vector = []] = vectorsOf({ input: 'x', dimensions: 8 })
    expect(vector).toHaveLength(8)
    const [{ embedding } = { embedding: null }] = ask({
      input: 'x',
      dimensions: 8,
      encoding_format: 'base64',
    }).data
    const bytes = Buffer.from(String(embedding), 'base64')
    expect(vector).toEqual(vector.map((_, index) => bytes.readFloatLE(index * 4)))
  })

  it('the demonstration of embeddings refuses an unknown model and an empty input', () => {
    expect(() => ask({ model: 'demo/echo', input: 'x' })).toThrow(DemoError)
    expect(() => ask({ input: '' })).toThrow(DemoError)
  })
})
