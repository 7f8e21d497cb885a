import { describe, expect, it } from 'vitest'
import { ESTIMATE_MAX } from '../../../src/accounts/limits/limiter.ts'
import { PARSED_LENGTH_MAX, usedTokensOf } from '../../../src/chat/token-estimates.ts'

const used = (usage: unknown) => usedTokensOf(JSON.stringify({ choices: [], usage }), 10)
/** Prompt of 10, and a token for 4 characters. */
const estimated = (usage: unknown) =>
  10 + Math.ceil(JSON.stringify({ choices: [], usage }).length / 4)

describe('the usage of a completion', () => {
  it('is the total that it states', () => {
    expect(used({ prompt_tokens: 3, completion_tokens: 4, total_tokens: 9 })).toBe(9)
    expect(used({ total_tokens: 0 })).toBe(0)
  })

  it('is the sum, where only the parts are stated', () => {
    expect(used({ prompt_tokens: 3, completion_tokens: 4 })).toBe(7)
  })

  it.each([
    null,
    {},
    { total_tokens: -5 },
    { total_tokens: 1.5 },
    { total_tokens: '9' },
    { total_tokens: 1e300 },
  ])('is estimated for %j', (usage) => expect(used(usage)).toBe(estimated(usage)))

  it('is never more than an estimate can be', () => {
    expect(used({ total_tokens: Number.MAX_SAFE_INTEGER })).toBe(ESTIMATE_MAX)
  })

  it('is estimated for a completion that is too long to be parsed for it', () => {
    const long = JSON.stringify({
      choices: ['x'.repeat(PARSED_LENGTH_MAX)],
      usage: { total_tokens: 1 },
    })
    expect(usedTokensOf(long, 10)).toBe(10 + Math.ceil(long.length / 4))
  })
})
