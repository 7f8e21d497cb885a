import { beforeEach, expect, it } from 'vitest'
import { assembleTiers, type LimitGroup } from '#src/accounts/limits/tiers.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

const group = (
  name: string,
  models: readonly string[],
  limits: Partial<LimitGroup['limits']>,
): LimitGroup => ({
  name,
  calls: ['verified', 'chat', 'embeddings', 'images', 'search'],
  models,
  limits: {
    requestsPerMinute: null,
    tokensPerMinute: null,
    requestsPerDay: null,
    tokensPerDay: null,
    ...limits,
  },
  pricePerMillionTokens: null,
})

const TIERS = assembleTiers('small', [
  {
    name: 'small',
    description: 'For tests',
    groups: [
      group('few', ['demo/few'], { requestsPerDay: 10 }),
      group('tokens', ['demo/tokens'], { tokensPerDay: 1000 }),
      group('rest', ['*'], {}),
    ],
  },
  { name: 'large', description: '', groups: [group('all', ['*'], { requestsPerDay: 1_000_000 })] },
])

const gateway = await useGateway({ tiers: TIERS })
beforeEach(() => gateway.enclave.setScript(answerWhole({ usage: usage(100) })))

const usage = (total: number) => ({
  prompt_tokens: 1,
  completion_tokens: total - 1,
  total_tokens: total,
})

/** A caller of an account that has used nothing. */
async function makeCaller() {
  const { text, key } = await gateway.keys.create({
    accountName: `a ${crypto.randomUUID()}`,
    name: 'k',
  })
  const caller = { url: gateway.url, key: text }
  const report = async (name: string) => {
    const { usages } = (await (await getPath(caller, '/v1/dashboard/rate-limits')).json()) as {
      readonly usages: readonly { readonly model: string }[]
    }
    return usages.find(({ model }) => model === name)
  }
  return {
    caller,
    key,
    report,
    post: (request: object) => postChat(caller, { ...CHAT_REQUEST, ...request }),
  }
}

it('a call beyond its limit gets a 429 in the envelope of the interface, with headers', async () => {
  const { post } = await makeCaller()
  for (let call = 10; call > 0; call--) {
    const { status, headers } = await post({ model: 'demo/few' })
    expect(status).toBe(200)
    expect(headers.get('x-ratelimit-limit-requests')).toBe('10')
    expect(headers.get('x-ratelimit-remaining-requests')).toBe(String(call - 1))
    expect(headers.get('x-ratelimit-reset-requests')).toMatch(/^\d+s$/)
    expect(headers.get('x-ratelimit-limit-tokens')).toBeNull()
  }
  const calls = gateway.enclave.calls.length
  const refused = await post({ model: 'demo/few' })
  expect(refused.status).toBe(429)
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  // The limit of the day ends in hours; no SDK waits for so long.
  const resetSeconds = Number.parseInt(refused.headers.get('x-ratelimit-reset-requests') ?? '', 10)
  expect(refused.headers.get('retry-after')).toBe(String(Math.min(resetSeconds, 59)))
  expect(refused.headers.get('retry-after-ms')).toBe(String(Math.min(resetSeconds, 59) * 1000))
  expect(refused.headers.get('x-ratelimit-remaining-requests')).toBe('0')
  expect(refused.headers.get('x-should-retry')).toBeNull()
  expect(await refused.json()).toEqual({
    response: 'NOK',
    error: {
      status_code: 429,
      code: 'rate_limit_exceeded',
      message: expect.stringContaining('10 requests per day, 0 left'),
      type: 'rate_limit_error',
      param: null,
    },
  })
  expect(gateway.enclave.calls).toHaveLength(calls)
})

it('a limit reserves the longest answer that is allowed, and settles with the usage', async () => {
  const { post, report } = await makeCaller()
  const reply = await post({ model: 'demo/tokens', max_tokens: 500 })
  // 5 bytes and one message make 6 tokens.
  expect(reply.headers.get('x-ratelimit-remaining-tokens')).toBe(String(1000 - 506))
  expect(await report('tokens')).toMatchObject({ tokens_used_day: 100, tokens_left_day: 900 })
  expect(await outcomeOf(await post({ model: 'demo/tokens', max_tokens: 895 }))).toEqual([
    429,
    'rate_limit_exceeded',
  ])
  expect(await report('tokens')).toMatchObject({ tokens_used_day: 100, requests_used_day: 1 })
})

it('requests that fail validation or authentication consume no limit', async () => {
  const { caller, post, report } = await makeCaller()
  expect((await post({ model: 'demo/few', temperature: 9 })).status).toBe(422)
  const wrong = {
    ...caller,
    key: `${caller.key.slice(0, -1)}${caller.key.endsWith('A') ? 'E' : 'A'}`,
  }
  expect((await postChat(wrong, { ...CHAT_REQUEST, model: 'demo/few' })).status).toBe(401)
  expect(await report('few')).toMatchObject({ requests_used_day: 0 })
})

it("limits are those of the account's tier, at once after its change", async () => {
  const { caller, key, post } = await makeCaller()
  await gateway.accounts.setTier(key.accountName, 'large')
  const readReport = async () => (await getPath(caller, '/v1/dashboard/rate-limits')).json()
  await expect.poll(readReport, { timeout: AT_ONCE_MS }).toMatchObject({ usage_tier_name: 'large' })
  const reply = await post({ model: 'demo/few' })
  expect(reply.headers.get('x-ratelimit-limit-requests')).toBe('1000000')
  expect(await readReport()).toEqual({
    usage_tier_name: 'large',
    usage_tier_description: '',
    credits_balance: null,
    usages: [
      {
        model: 'all',
        full_model: '*',
        price_per_million_tokens: null,
        max_requests_per_day: 1_000_000,
        max_requests_per_minute: null,
        max_tokens_per_day: null,
        max_tokens_per_minute: null,
        requests_left_day: 999_999,
        requests_used_day: 1,
        tokens_left_day: null,
        tokens_used_day: 100,
      },
    ],
  })
})

it('limits count the usage of plain completions too, whole and streamed', async () => {
  const { caller, report } = await makeCaller()
  for (const stream of [false, true]) {
    const before = (await report('rest')) as unknown as { tokens_used_day: number }
    const reply = await fetch(`${caller.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${caller.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...CHAT_REQUEST, stream }),
    })
    expect(reply.status).toBe(200)
    await reply.text()
    const after = (await report('rest')) as unknown as { tokens_used_day: number }
    expect(after.tokens_used_day).toBeGreaterThan(before.tokens_used_day)
  }
})
