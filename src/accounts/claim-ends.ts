import type { Logger } from '../observability/logger.ts'
import { LruMap } from '../runtime/lru-map.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import { isValueRefused } from '../storage/errors.ts'
import type { CallName, IdempotencyStore } from './idempotency-store.ts'

/** The end of a call with an Idempotency-Key. */
export type ClaimEnd =
  | { readonly kind: 'release' | 'abandon'; readonly call: CallName }
  | { readonly kind: 'keep'; readonly call: CallName; readonly answer: string }

/** Maximum number of remembered ends, and of UTF-16 units in their answers. */
const ENDS_MAX = 1_000
const ANSWERS_LENGTH_MAX = 8 * 1024 * 1024

const RETRY_INTERVAL_MS = 1_000

const FAULTS = {
  keep: 'answer not kept',
  abandon: 'idempotency key not given up',
  release: 'idempotency key not freed',
} as const

/**
 * Stores the ends of calls. An end that cannot be stored is remembered, and tried again until the
 * database accepts it: until then, other gateways believe that the call still runs. No method
 * rejects.
 */
export function createClaimEnds(
  store: Pick<IdempotencyStore, 'keep' | 'abandon' | 'release'>,
  log: Logger,
) {
  const unstored = new LruMap<string, ClaimEnd>(ENDS_MAX)
  let isScheduled = false

  /** Returns false if the end could not be stored. */
  async function end(one: ClaimEnd): Promise<boolean> {
    const { kind, call } = one
    try {
      await (kind === 'keep' ? store.keep(call, one.answer) : store[kind](call))
      unstored.delete(call.callId)
      return true
    } catch (fault) {
      log.warn({ err: fault }, FAULTS[kind])
      // The answer can never be stored, and the ends behind it must not wait for it.
      if (kind === 'keep' && isValueRefused(fault)) return end({ kind: 'abandon', call })
      remember(one)
      return false
    }
  }

  function remember(one: ClaimEnd): void {
    const { callId } = one.call
    unstored.delete(callId)
    unstored.set(callId, hasRoom(one) ? one : { kind: 'abandon', call: one.call })
    schedule()
  }

  function schedule(): void {
    if (isScheduled || unstored.size === 0) return
    isScheduled = true
    setTimeout(() => {
      isScheduled = false
      void retry().then(schedule)
    }, RETRY_INTERVAL_MS).unref()
  }

  function hasRoom(one: ClaimEnd): boolean {
    let length = lengthOf(one)
    for (const [, other] of unstored) length += lengthOf(other)
    return length <= ANSWERS_LENGTH_MAX
  }

  /** Stops at the first failure, because the others would wait for the same database. */
  const retry = singleFlight(async () => {
    for (const [, one] of [...unstored]) if (!(await end(one))) return
  })

  return {
    end,
    remember,
    retry,
    /** Returns the remembered end of this call. */
    find: (callId: string) => unstored.get(callId),
  }
}

function lengthOf(end: ClaimEnd): number {
  return end.kind === 'keep' ? end.answer.length : 0
}
