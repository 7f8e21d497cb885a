import { createHash } from 'node:crypto'
import { callerOf } from '../api/authenticate.ts'
import type { RouteContext } from '../api/context.ts'
import type { EventWriter } from '../api/event-writer.ts'
import { replayChunks } from '../verified/replay-chunks.ts'
import type { Claim, Claimed, Idempotency } from './idempotency.ts'
import { IDEMPOTENCY_HEADER, parseIdempotencyKey } from './idempotency-key.ts'

/** On an answer that was made before. */
export const REPLAYED_HEADER = 'idempotent-replayed'

/** Key of a call; null without one. Throws ValidationError. */
export function keyOf({ req }: RouteContext): string | null {
  return parseIdempotencyKey(req.headers[IDEMPOTENCY_HEADER])
}

/** Claims the key for the request that these bytes are, at this path; null without a key. Throws ApiError. */
export async function claimKey(
  context: RouteContext,
  idempotency: Idempotency,
  call: {
    readonly key: string | null
    readonly body: Uint8Array
    readonly isVerified: boolean
    /** Of a verified call. */
    readonly model?: string
    readonly abort: AbortController
  },
): Promise<Claimed | null> {
  const { key, body, isVerified, model, abort } = call
  if (key === null) return null
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
 * Writes the stream of a completion (JSON text) that was streamed before, to its end. `withProof`
 * puts the proof of a verified one into its last chunk. The chunks are not those that were first
 * given, so they must assemble to the signed response, with its usage. For a caller who asked for
 * no usage chunk, the last chunk has the usage.
 */
export async function replayEvents(
  writer: EventWriter,
  completion: string,
  {
    includesUsage,
    withProof = null,
  }: { readonly includesUsage: boolean; readonly withProof?: ((chunk: string) => string) | null },
): Promise<void> {
  const { chunks, usage } = replayChunks(JSON.parse(completion))
  const given = [...chunks, ...(includesUsage && usage !== null ? [usage] : [])]
  const texts = given.map((chunk) => JSON.stringify(chunk))
  const last = given.at(-1)
  if (withProof !== null && last !== undefined) {
    const whole = usage === null ? last : { ...last, usage: usage.usage ?? null }
    texts.splice(-1, 1, withProof(JSON.stringify(whole)))
  }
  writer.end([...texts, '[DONE]'].map((text) => `data: ${text}\n\n`).join(''))
}

/** Runs a call under its claim, if it has one: what `run` gives is the answer to keep, null for one that left a record. */
export async function underClaim(claim: Claim | null, run: () => Promise<string | null>): Promise<void> {
  try {
    const answer = await run()
    await claim?.succeed(answer)
  } catch (error) {
    await claim?.fail(error)
    throw error
  }
}
