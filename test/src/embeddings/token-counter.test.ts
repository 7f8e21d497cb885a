import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { countTokens } from 'gpt-tokenizer/encoding/cl100k_base'
import { expect, it } from 'vitest'
import { loadCl100k } from '#src/embeddings/byte-pairs.ts'
import { createTokenCounter, LONG_PIECE_BYTES } from '#src/embeddings/token-counter.ts'

const counter = createTokenCounter(loadCl100k)
const never = new AbortController().signal
const count = (text: string, max = 1_000_000) => counter.count(text, { max, signal: never })

// Figures of OpenAI's own tiktoken, cl100k_base (openai-cookbook,
// How_to_count_tokens_with_tiktoken).
it.each([
  ['', 0],
  ['tiktoken is great!', 6],
  ['antidisestablishmentarianism', 6],
  ['2 + 2 = 4', 7],
  ['お誕生日おめでとう', 9],
])('a token counter counts %j as its makers do', async (text, tokens) => {
  expect(await count(text)).toBe(tokens)
})

it('a token counter counts any text as gpt-tokenizer does', async () => {
  // The unit `binary` of fast-check takes two seconds to make.
  const point = fc.integer({ min: 0, max: 0x10_ffff }).map((at) => String.fromCodePoint(at))
  const texts = fc.oneof(
    fc.string({ unit: point.filter((text) => text.isWellFormed()), maxLength: 200 }),
    fc.string({ unit: 'grapheme', maxLength: 200 }),
    fc.string({ unit: fc.constantFrom(...'abhé \n\u{1f600}', 'th'), maxLength: 400 }),
  )
  await fc.assert(
    fc.asyncProperty(texts, async (text) => {
      expect(await count(text)).toBe(countTokens(text))
    }),
    { numRuns: 200 },
  )
})

it('a token counter counts what looks like a special token as text', async () => {
  const asText = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() }
  expect(await count('<|endoftext|>')).toBe(countTokens('<|endoftext|>', asText))
  expect(await count('<|endoftext|>')).toBe(7)
})

it('a token counter distinguishes exactly the limit from one token more', async () => {
  expect(await count('tiktoken is great!', 6)).toBe(6)
  expect(await count('tiktoken is great!', 5)).toBeNull()
  expect(await count('a'.repeat(10_000_000), 8192)).toBeNull()
})

it('a token counter knows by its bytes that a text is too long', async () => {
  const before = process.cpuUsage()
  expect(await count('一'.repeat(1_000_000), 8192)).toBeNull()
  expect(process.cpuUsage(before).user).toBeLessThan(100_000)
})

it('a token counter holds the memory of one long word, however many are counted at once', async () => {
  const abort = new AbortController()
  const word = 'ab'.repeat(128 * 1024)
  const held = () => process.memoryUsage().arrayBuffers
  const before = held()
  const counting = Array.from({ length: 16 }, () =>
    counter
      .count(word, { max: 1_000_000, signal: abort.signal })
      .catch((error: Error) => error.message),
  )
  for (let turns = 0; turns < 50; turns++) await turn()
  expect(held() - before).toBeLessThan(3 * 28 * word.length)
  abort.abort(new Error('left'))
  expect(await Promise.all(counting)).toEqual(Array(16).fill('left'))
  expect(await count('ab'.repeat(LONG_PIECE_BYTES))).toBeGreaterThan(1_000)
})

it('a token counter counts one unbroken word of 256 KiB in seconds, while other calls go on', async () => {
  await count('warm up')
  const startedAt = performance.now()
  let longestMs = 0
  let last = startedAt
  const beat = setInterval(() => {
    longestMs = Math.max(longestMs, performance.now() - last)
    last = performance.now()
  }, 5)
  const tokens = await count('ab'.repeat(128 * 1024))
  clearInterval(beat)
  expect(tokens).toBeGreaterThan(25_000)
  expect(performance.now() - startedAt).toBeLessThan(20_000)
  // An unsliced count would hold everything for seconds.
  expect(longestMs).toBeLessThan(1_000)
})
