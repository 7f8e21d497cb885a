import { expect, it } from 'vitest'
import { familyOf, MODEL_FAMILIES } from '#src/observability/model-family.ts'

it.each([
  ['gpt-5-mini', 'gpt'],
  ['openai/GPT-4o', 'gpt'],
  ['openai/gpt-oss-120b', 'gpt-oss'],
  ['o3-mini', 'gpt'],
  ['claude-opus-4', 'claude'],
  ['meta-llama/Llama-3.3-70B-Instruct', 'llama'],
  ['mixtral:8x7b', 'mistral'],
  ['text-embedding-3-small', 'embedding'],
  ['stable-diffusion-xl', 'stable-diffusion'],
  ['my-own-model', 'other'],
  ['', 'none'],
  [undefined, 'none'],
])('the family of the model “%s” is %s', (model, family) => {
  expect(familyOf(model)).toBe(family)
})

it('the family of a model is one of a fixed set, whatever a caller writes', () => {
  const names = ['x'.repeat(1_000_000), 'gpt\n{}"', '__proto__', '/', '🦙', 'gpt'.repeat(99), '\0']
  for (const name of names) expect(MODEL_FAMILIES).toContain(familyOf(name))
})
