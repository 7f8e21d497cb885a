import { expect, it } from 'vitest'
import {
  describeQuota,
  describeRefusal,
  type QuotaUse,
  quotaHeaders,
} from '#src/accounts/limits/quota.ts'
import { OPENAI_FACE } from '#src/api/faces.ts'

/** 18 s after midnight UTC. */
const AT = 1_795_219_218
const usage = (
  limits: Partial<QuotaUse['limits']>,
  used: Partial<QuotaUse['used']> = {},
): QuotaUse => ({
  limits: {
    requestsPerMinute: null,
    tokensPerMinute: null,
    requestsPerDay: null,
    tokensPerDay: null,
    ...limits,
  },
  used: {
    minute: Math.floor(AT / 60),
    minuteRequests: 0,
    minuteTokens: 0,
    day: Math.floor(AT / 86_400),
    dayRequests: 0,
    dayTokens: 0,
    ...used,
  },
  at: AT,
})

it('a quota is told in headers, with its resets in seconds', () => {
  const quota = describeQuota(
    usage(
      { requestsPerMinute: 60, tokensPerMinute: 40_000 },
      { minuteRequests: 1, minuteTokens: 500 },
    ),
  )
  expect(quotaHeaders(quota, OPENAI_FACE, 0)).toEqual({
    'x-ratelimit-limit-requests': '60',
    'x-ratelimit-remaining-requests': '59',
    'x-ratelimit-reset-requests': '42s',
    'x-ratelimit-limit-tokens': '40000',
    'x-ratelimit-remaining-tokens': '39500',
    'x-ratelimit-reset-tokens': '42s',
  })
})

it('a quota is that of the day when less is left of the day', () => {
  const { requests, tokens } = describeQuota(
    usage(
      { requestsPerMinute: 60, requestsPerDay: 100, tokensPerMinute: 10, tokensPerDay: 10 },
      { dayRequests: 50 },
    ),
  )
  expect(requests).toEqual({ limit: 100, remaining: 50, resetSeconds: 86_382 })
  expect(tokens).toEqual({ limit: 10, remaining: 10, resetSeconds: 42 })
})

it('a quota says nothing about what has no limit', () => {
  const headersOf = (use: QuotaUse) => quotaHeaders(describeQuota(use), OPENAI_FACE, 0)
  expect(headersOf(usage({}))).toEqual({})
  expect(Object.keys(headersOf(usage({ tokensPerDay: 5 })))).toEqual([
    'x-ratelimit-limit-tokens',
    'x-ratelimit-remaining-tokens',
    'x-ratelimit-reset-tokens',
  ])
})

it('a refusal waits for the last limit that is in the way', () => {
  const both = usage(
    { requestsPerMinute: 1, tokensPerDay: 10 },
    { minuteRequests: 1, dayTokens: 5 },
  )
  expect(describeRefusal(both, 6)).toMatchObject({ retryAfterSeconds: 86_382, isHopeless: false })
  expect(describeRefusal(both, 5)).toMatchObject({
    retryAfterSeconds: 42,
    message: 'Rate limit reached: 1 requests per minute, 0 left. Try again in 42 s',
  })
})

it('a refusal of a call without tokens names the tokens that others used beyond the limit', () => {
  const passed = usage({ requestsPerMinute: 9, tokensPerDay: 10 }, { dayTokens: 12 })
  expect(describeRefusal(passed, 0)).toMatchObject({
    retryAfterSeconds: 86_382,
    isHopeless: false,
    message: expect.stringContaining('10 tokens per day, 0 left'),
  })
})

it('a refusal of a call that no window has room for says so', () => {
  expect(describeRefusal(usage({ tokensPerMinute: 10 }), 11)).toMatchObject({
    isHopeless: true,
    message: expect.stringContaining('11 tokens, but the limit is 10 tokens per minute'),
  })
})
