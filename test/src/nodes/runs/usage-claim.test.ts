import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import {
  boundUsage,
  COMPLETION_TOKENS_EXTRA,
  MEDIA_TOKENS_EXTRA,
  PROMPT_TOKENS_EXTRA,
  promptTokensMax,
} from '#src/nodes/runs/usage-claim.ts'

const EVIDENCE = { promptTokensMax: 100, textLength: 10, tokenChunks: 5 }

it('a usage claim that is plausible stays, with its details', () => {
  const claim = {
    prompt_tokens: 20,
    completion_tokens: 8,
    total_tokens: 28,
    prompt_tokens_details: { cached_tokens: 16 },
    completion_tokens_details: { reasoning_tokens: 3 },
  }
  expect(boundUsage(claim, EVIDENCE)).toEqual(claim)
})

it('a usage claim loses details that cannot be true', () => {
  const details = { cached_tokens: 21, audio_tokens: -1, text: 'x', nested: {}, image_tokens: 4 }
  Object.assign(details, { ['long'.repeat(1_000)]: 1 })
  const bound = boundUsage(
    { prompt_tokens: 20, completion_tokens: 8, prompt_tokens_details: details },
    EVIDENCE,
  )
  expect(bound?.prompt_tokens_details).toEqual({ image_tokens: 4 })
})

it('a usage claim becomes null or is within the bounds, whatever it is', () => {
  const claims = fc.dictionary(
    fc.constantFrom(
      'prompt_tokens',
      'completion_tokens',
      'total_tokens',
      'prompt_tokens_details',
      '__proto__',
    ),
    fc.oneof(fc.jsonValue(), fc.integer({ min: -5, max: 1e6 }), fc.maxSafeInteger()),
  )
  fc.assert(
    fc.property(claims, (claim) => {
      const bound = boundUsage(JSON.parse(JSON.stringify(claim)) as JsonObject, EVIDENCE)
      if (bound === null) return
      const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } = bound
      expect(Number.isInteger(prompt) && Number.isInteger(completion)).toBe(true)
      expect(Number(prompt)).toBeLessThanOrEqual(100)
      expect(Number(completion)).toBeLessThanOrEqual(30 + 5 + COMPLETION_TOKENS_EXTRA)
      expect(total).toBe(Number(prompt) + Number(completion))
    }),
  )
})

it.each([
  ['of text', [{ role: 'user', content: 'hello' }], PROMPT_TOKENS_EXTRA],
  [
    'of parts of text',
    [{ role: 'user', content: [{ type: 'text', text: 'a' }] }],
    PROMPT_TOKENS_EXTRA,
  ],
  [
    'with an image',
    [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }],
    MEDIA_TOKENS_EXTRA,
  ],
  ['without messages', null, PROMPT_TOKENS_EXTRA],
])(
  'a prompt %s has at most a token per byte and what templates and media add',
  (_, messages, extra) => {
    expect(promptTokensMax({ messages }, 50)).toBe(50 + extra)
  },
)
