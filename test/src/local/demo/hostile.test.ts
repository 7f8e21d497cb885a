import { describe, expect, it } from 'vitest'
import { chooseAnswer, type Question } from '#src/local/demo/choices.ts'
import { exampleOf } from '#src/local/demo/schema-example.ts'

const question: Question = {
  model: 'demo/task',
  said: '',
  toolResult: null,
  answered: 0,
  tools: [{ name: 'f' }],
  toolChoice: 'auto',
  callsMax: Number.POSITIVE_INFINITY,
  format: null,
  stops: [],
  tokensMax: 10,
  seed: '',
}

describe('a hostile request', () => {
  it('a hostile text costs the demonstration time in proportion to its length', () => {
    const texts = ['a'.repeat(1_000_000), 'f({'.repeat(300_000), `${'f({"a":'.repeat(100_000)}})`]
    for (const said of texts) expect(chooseAnswer({ ...question, said }).kind).toBe('text')
  })

  it('a tool that is offered again and again is called at most 32 times in one answer', () => {
    const tools = Array.from({ length: 3_000 }, () => ({ name: 'f' }))
    const said = `f({"x":"${'y'.repeat(30_000)}"})`
    const answer = chooseAnswer({ ...question, model: 'demo/tools', tools, said })
    expect(answer.kind === 'calls' && answer.calls.length).toBe(32)
  })

  it('a schema whose example would be huge, or is nowhere, is refused', () => {
    const schemas = [
      { type: 'array', minItems: 9_999, items: { type: 'string', minLength: 10_000 } },
      { anyOf: Array.from({ length: 50_000 }, () => false) },
      { type: 'array', minItems: 9, items: { const: 'x'.repeat(50_000) } },
    ]
    for (const schema of schemas)
      expect(() => exampleOf(schema)).toThrow(expect.objectContaining({ status: 400 }))
  })
})
