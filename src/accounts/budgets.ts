import { ApiError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop } from '../runtime/loop.ts'
import type { ProcessLease } from '../storage/process-lease.ts'
import type { BudgetRefusal, BudgetsStore, BudgetUse } from './budgets-store.ts'
import { ESTIMATE_MAX, type LimitedCall, type Permit, type RateLimiter } from './limits/limiter.ts'
import { costOf, largestAnswer, largestCost, type Prices } from './prices.ts'

const SETTLED_AT_ONCE = 256
/** How long settlements are collected before they are sent. */
const LINGER_MS = 100
const RETRY_MS = 1_000
/** Interval between searches for calls of dead processes. */
const EXPIRE_INTERVAL_MS = 15_000

/**
 * Returns a limiter that also applies budgets. A call first reserves its estimate, and settles its
 * real use at its end. `admit` throws ApiError `insufficient_quota`.
 */
export function withBudgets({
  limiter,
  store,
  prices,
  lease,
  log,
}: {
  readonly limiter: RateLimiter
  readonly store: Pick<BudgetsStore, 'reserve' | 'settle' | 'expire'>
  /** Read once for each API call. The call is settled at these prices. */
  readonly prices: () => Prices
  readonly lease: Pick<ProcessLease, 'id'>
  readonly log: Pick<Logger, 'warn' | 'error'>
}): RateLimiter {
  let waiting: BudgetUse[] = []

  async function send(): Promise<boolean> {
    const uses = waiting.splice(0, SETTLED_AT_ONCE)
    if (uses.length === 0) return true
    try {
      await store.settle(lease.id(), uses)
      return true
    } catch (error) {
      log.warn({ err: error }, 'budgets not settled, trying again')
      waiting = [...uses, ...waiting]
      return false
    }
  }

  const settling = createLoop(async () => {
    const isSent = await send()
    return isSent ? LINGER_MS : RETRY_MS
  })
  const expiring = createLoop(async () => {
    await store
      .expire()
      .catch((error) => log.warn({ err: error }, 'reservations of dead processes not given back'))
    return EXPIRE_INTERVAL_MS
  })
  settling.start()
  expiring.start()

  async function reserve(call: LimitedCall & { readonly keyId: string }) {
    const { accountId, keyId, model, promptTokens, images, answers } = call
    const known = prices()
    const tokens = mostTokensOf(call, known)
    const callId = crypto.randomUUID()
    const size = { tokens, promptTokens, images }
    const isHidden = model === '' && answers !== undefined
    const money = isHidden ? largestCost(known, size) : costOf(known, { ...size, model })
    const processId = lease.id()
    const settle = (use: Pick<BudgetUse, 'requests' | 'tokens' | 'money'>) =>
      void waiting.push({ callId, accountId, keyId, ...use })
    const refusal = await store
      .reserve({ callId, processId, accountId, keyId, tokens, money })
      .catch((error: unknown) => {
        // Only the answer may be lost. A reservation that arrives later fails, because the call is
        // settled.
        settle({ requests: 0, tokens: 0, money: 0 })
        throw error
      })
    if (refusal !== null) throw refuse(refusal, call)
    return { settle, prices: known, reservedMoney: money ?? 0 }
  }

  return {
    ...limiter,
    async admit(call) {
      const { keyId, isBudgeted = false } = call
      if (!isBudgeted || keyId === undefined) return limiter.admit(call)
      const held = await reserve({ ...call, keyId })
      const release = () => held.settle({ requests: 0, tokens: 0, money: 0 })
      const decision = await limiter
        .admit({ ...call, prices: held.prices })
        .catch((error: unknown) => {
          release()
          throw error
        })
      if (decision.kind === 'refused') {
        release()
        return decision
      }
      const permit: Permit = {
        ...decision.permit,
        settle(usedTokens, named, promptTokens, images) {
          const use = decision.permit.settle(usedTokens, named, promptTokens, images)
          if (use !== null)
            held.settle({ requests: 1, tokens: use.tokens, money: use.money ?? held.reservedMoney })
          return use
        },
      }
      return { kind: 'admitted', permit }
    },
    async stop() {
      await Promise.all([settling.stop(), expiring.stop()])
      while (waiting.length > 0 && (await send()));
      if (waiting.length > 0) log.error({ calls: waiting.length }, 'budgets were not settled')
      await limiter.stop()
    },
  }
}

function mostTokensOf({ model, estimate, promptTokens = 0, answers }: LimitedCall, prices: Prices) {
  if (answers === undefined) return Math.min(estimate, ESTIMATE_MAX)
  const { count, tokensMax } = answers
  const answerTokens = count * (tokensMax ?? largestAnswer(prices, model))
  return Math.min(promptTokens + answerTokens, ESTIMATE_MAX)
}

/** `model`: empty for calls whose model is unknown or encrypted. */
function refuse(
  { what, per, is_of_key, amount, renews_at }: BudgetRefusal,
  { model, answers }: Pick<LimitedCall, 'model' | 'answers'>,
): ApiError {
  const unpriced = model === '' ? 'a call without a readable model' : 'this model'
  const whose = is_of_key ? 'this API key' : 'this account'
  const period = per === 'total' ? '' : `${per === 'day' ? 'daily' : 'monthly'} `
  const until =
    renews_at === null
      ? 'it does not renew'
      : `it renews at ${new Date(renews_at * 1000).toISOString()}`
  const isOpen = what !== 'requests' && answers !== undefined && answers.tokensMax === null
  const hint = isOpen ? '. The call reserved the longest answer: bound it, as with max_tokens' : ''
  return new ApiError(
    'insufficient_quota',
    amount === null
      ? `${capital(whose)} has a budget of money, but ${unpriced} has no price`
      : `The ${period}budget of ${what} of ${whose} is too small for this call; ${until}${hint}`,
  )
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
