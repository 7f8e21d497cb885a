import { createHash } from 'node:crypto'
import { z } from 'zod'
import { callerOf } from '../api/authenticate.ts'
import type { RouteContext } from '../api/context.ts'
import { described, faultIssue } from '../api/schemas.ts'
import type { Claim, Claimed, Idempotency } from './idempotency.ts'

/** On an answer that was made before. */
const REPLAYED_HEADER = 'idempotent-replayed'

/** Longest key, characters: enough for any id, also several in one. */
const IDEMPOTENCY_KEY_LENGTH_MAX = 255

const idempotencyKey = described(
  z.string().check(({ value, issues }) => {
    if (/^[\x21-\x7e]{1,255}$/.test(value)) return
    const expected = `1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters without blanks`
    issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
  }),
  () => ({
    type: 'string',
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_LENGTH_MAX,
    description:
      'Names the call, so that it is made once: the same key and body are answered with what is stored',
  }),
).optional()

/** Headers of a call that its caller may name, so that it is made once. */
export const idempotencyHeaders = z.object({ 'idempotency-key': idempotencyKey })

/** What a call is refused with because of its key. */
export const IDEMPOTENCY_ERRORS = [
  'idempotency_in_progress',
  'idempotency_key_reused',
  'idempotency_outcome_unknown',
] as const

/**
 * Claims the key for the request that these bytes are, at this path; null without a key. Throws
 * ApiError.
 */
export async function claimKey<Stored>(
  context: RouteContext,
  idempotency: Idempotency<Stored>,
  call: {
    /** Its Idempotency-Key. */
    readonly key: string | undefined
    readonly body: Uint8Array
    readonly isVerified: boolean
    /** Of a verified call. */
    readonly model?: string
    readonly abort: AbortController
  },
): Promise<Claimed<Stored> | null> {
  const { key, body, isVerified, model, abort } = call
  if (key === undefined) return null
  const { accountId } = callerOf(context.state)
  const requestHash = createHash('sha256').update(`${context.path}\n`).update(body).digest()
  const claimed = await idempotency.claim({
    ...{ accountId, key, requestHash, isVerified, abort },
    ...(model === undefined ? {} : { model }),
  })
  if (claimed.kind !== 'claimed') context.set(REPLAYED_HEADER, 'true')
  return claimed
}

/** The claim, of a call that is to be made; null without a key. */
export function claimOf(claimed: Claimed | null): Claim | null {
  return claimed?.kind === 'claimed' ? claimed : null
}

/**
 * Runs a call under its claim, if it has one, and gives what `run` gives: the answer to keep; null
 * for one that left a record.
 */
export async function underClaim<Answer extends string | null>(
  claim: Claim | null,
  run: () => Promise<Answer>,
): Promise<Answer> {
  try {
    const answer = await run()
    await claim?.succeed(answer)
    return answer
  } catch (error) {
    await claim?.fail(error)
    throw error
  }
}
