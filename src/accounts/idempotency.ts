import { createHash } from 'node:crypto'
import { z } from 'zod'
import { equalBytes } from '#attestation/bytes.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { callerOf } from '../api/authenticate.ts'
import type { RouteContext } from '../api/context.ts'
import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'
import { described, faultIssue } from '../api/schemas.ts'
import type { Logger } from '../observability/logger.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import { ContentUnavailable } from '../storage/errors.ts'
import type { ProcessLease } from '../storage/process-lease.ts'
import { createClaimEnds } from './claim-ends.ts'
import type { CallName, IdempotencyStore, KeyedCall, KnownCall } from './idempotency-store.ts'

/** This header says that the answer belongs to an earlier call with the same key. */
const REPLAYED_HEADER = 'idempotent-replayed'

/** Maximum length of a key, characters. */
const IDEMPOTENCY_KEY_LENGTH_MAX = 255

const idempotencyKey = described(
  z.string().check(({ value, issues }) => {
    if (/^[\x21-\x7e]{1,255}$/.test(value)) return
    const expected = `1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters without spaces`
    issues.push(faultIssue([], 'value_error', `Input should be ${expected}`))
  }),
  () => ({
    type: 'string',
    minLength: 1,
    maxLength: IDEMPOTENCY_KEY_LENGTH_MAX,
    description:
      'Names the call, so that it is made only once: the same key and body get the stored answer',
  }),
).optional()

export const idempotencyHeaders = z.object({ 'idempotency-key': idempotencyKey })

export const IDEMPOTENCY_ERRORS = [
  'idempotency_in_progress',
  'idempotency_key_reused',
  'idempotency_outcome_unknown',
] as const

/**
 * Claims the key for the request with this body and path. Null if the call has no key. Throws
 * ApiError.
 */
export async function claimKey<Stored>(
  context: RouteContext,
  idempotency: Idempotency<Stored>,
  call: {
    readonly key: string | undefined
    readonly body: Uint8Array
    /** Headers that are a part of the request. */
    readonly headers?: Readonly<Record<string, string>>
    readonly isVerified: boolean
    readonly model?: string
    readonly dialect?: DialectName
    readonly notary?: string | undefined
    readonly abort: AbortController
  },
): Promise<Claimed<Stored> | null> {
  const { key, body, headers = {}, isVerified, model, dialect, notary, abort } = call
  if (key === undefined) return null
  const { accountId } = callerOf(context.state)
  const given = Object.entries(headers).map((header) => `${JSON.stringify(header)}\n`)
  const head = `${context.path}\n${given.join('')}`
  const requestHash = createHash('sha256').update(head).update(body).digest()
  const claimed = await idempotency.claim({
    accountId,
    key,
    requestHash,
    isVerified,
    abort,
    ...(model === undefined ? {} : { model }),
    ...(dialect === undefined ? {} : { dialect }),
    ...(notary === undefined ? {} : { notary }),
  })
  if (claimed.kind !== 'claimed') context.set(REPLAYED_HEADER, 'true')
  return claimed
}

/** Returns the claim. Null if the call must not be made now, or has no key. */
export function claimOf(claimed: Claimed | null): Claim | null {
  return claimed?.kind === 'claimed' ? claimed : null
}

/**
 * Calls `run`, and ends the claim. `run` returns the answer to store, or null if a record holds the
 * answer.
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

/**
 * True if the answer will never be known. The provider may still have produced it
 * (ApiError.mayBeMade).
 */
export function isWithoutResult(error: unknown): boolean {
  if (error instanceof ValidationError) return true
  return error instanceof ApiError && (error.leavesNoResult || WITHOUT_RESULT.has(error.code))
}

/** True if this error proves that the provider produced nothing. */
function isUnmade(error: unknown): boolean {
  return isWithoutResult(error) && !(error instanceof ApiError && error.mayBeMade)
}

const WITHOUT_RESULT: ReadonlySet<ErrorCode> = new Set([
  'payload_too_large',
  'credential_mismatch',
  'notary_mismatch',
  'unsupported_model',
  'unsupported_dialect',
  'provider_credential_missing',
  'provider_credential_rejected',
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_key_mismatch',
  'provider_timeout',
  'answer_too_large',
  'log_full',
  'overloaded',
  'rate_limit_exceeded',
  'insufficient_quota',
  'no_available_inference_nodes',
  'node_refused',
  'node_error',
  'node_timeout',
])

type KeyedRequest = {
  readonly accountId: string
  readonly key: string
  /** SHA-256 of the request. */
  readonly requestHash: Uint8Array
  /** True if the answer is a record. If false, the answer is a stored text. */
  readonly isVerified: boolean
  /** The model of a verified call. Not all enclaves serve the same models and dialects. */
  readonly model?: string
  /** Default: chat. */
  readonly dialect?: DialectName
  /** The enclave that the caller names. Default: one is chosen. */
  readonly notary?: string
  /**
   * For a plain call. Aborted when other processes may make the call, because they believe that
   * this process is dead.
   */
  readonly abort: AbortController
}

/** A call that must be made now. End the claim with exactly one of these methods. */
export type Claim = {
  readonly kind: 'claimed'
  readonly callId: string
  /**
   * The enclave that must make the verified call. If the outcome is unknown, this enclave's log is
   * searched.
   */
  readonly notary: string | null
  /** `answer` is null for a verified call: the record is the answer. Never rejects. */
  succeed(answer: string | null): Promise<void>
  /** Frees the key if the provider certainly produced nothing. Never rejects. */
  fail(error: unknown): Promise<void>
}

export type Claimed<Stored = unknown> =
  | Claim
  | { readonly kind: 'record'; readonly record: Stored }
  | { readonly kind: 'answer'; readonly answer: string }

/** Only a whole completion counts as an answer. */
export type WholeOrNot = { readonly outcome: string }

export const RETENTION_SECONDS = 24 * 3_600

/**
 * How long an abandoned verified call is reported as in progress. A record that appears later is
 * still returned.
 */
export const SETTLE_SECONDS = 3

const PURGE_INTERVAL_MS = 60_000

/** Calls with the same key are made and answered only once. */
export type Idempotency<Stored = unknown> = {
  /**
   * Returns the answer of an earlier call with this key. Throws ApiError `idempotency_key_reused`
   * when the request differs, `idempotency_in_progress` while the earlier call runs,
   * `idempotency_outcome_unknown` and `not_ready`. Throws ContentUnavailable if an encrypted answer
   * cannot be read.
   */
  claim(request: KeyedRequest): Promise<Claimed<Stored>>
}

export type IdempotencyOptions<Stored extends WholeOrNot> = {
  readonly store: IdempotencyStore
  /** Null while the call has no record. */
  readonly findRecord: (callId: string) => Promise<Stored | null>
  readonly lease: Pick<ProcessLease, 'id' | 'isHeld' | 'onLost' | 'onReplaced'>
  /** Chooses the enclave for a call. Returns the enclave's notary. */
  readonly notary: (model: string, dialect: DialectName) => Promise<string>
  /**
   * Waits until everything that the notary's enclave sealed is committed. Ends early when the
   * enclave is known to be unreachable.
   */
  readonly settleLog: (signal: AbortSignal, notary: string | null) => Promise<void>
  /** Monotonic clock, milliseconds. */
  readonly now: () => number
  readonly log: Logger
}

/**
 * The answer of a verified completion is its record: the enclave receives the call's id, and the
 * record is later found by this id. So a killed process loses nothing. A verified call is made
 * again only if its first try certainly produced nothing. The error of a failed call can prove
 * this. The death of the gateway proves nothing.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one store
export function createIdempotency<Stored extends WholeOrNot>(
  options: IdempotencyOptions<Stored>,
): Idempotency<Stored> {
  const { store, lease, now, log } = options
  const running = new Map<string, KeyedRequest>()
  const ends = createClaimEnds(store, log)
  let purgedAtMs = now()
  lease.onLost(() => {
    // Verified calls are not aborted, because no other process repeats them while they can still
    // run here.
    for (const { abort, isVerified } of running.values())
      if (!isVerified)
        abort.abort(
          new ApiError('not_ready', 'This instance was not reachable for too long, try again'),
        )
  })

  let adoptedBy = lease.id()
  /**
   * Stores this process's new id with its verified calls. Under the old id, other gateways believe
   * that the calls ended. Never rejects. A failure is tried again at the next claim.
   */
  const adopt = singleFlight(async () => {
    const processId = lease.id()
    if (processId === adoptedBy) return
    const calls = [...running]
      .filter(([, { isVerified }]) => isVerified)
      .map(([callId, { accountId, key }]) => ({ accountId, key, callId }))
    try {
      if (calls.length > 0) await store.adopt(calls, processId)
      adoptedBy = processId
    } catch (error) {
      log.warn({ err: error }, 'running calls not stored under the new id of this process')
    }
  })
  lease.onReplaced(() => void adopt())

  function open(call: KeyedCall): Claim {
    return {
      kind: 'claimed',
      callId: call.callId,
      notary: call.notary,
      async succeed(answer) {
        if (answer !== null) await ends.end({ kind: 'keep', call, answer })
        running.delete(call.callId)
      },
      async fail(error) {
        running.delete(call.callId)
        await ends.end({ kind: isUnmade(error) ? 'release' : 'abandon', call })
      },
    }
  }

  /** Calls `run`. If `run` fails, it may have claimed the key, so the key is freed later. */
  async function claiming<Outcome>(
    call: KeyedCall,
    request: KeyedRequest,
    isClaimed: (outcome: Outcome) => boolean,
    run: () => Promise<Outcome>,
  ): Promise<Outcome> {
    // Set before `run` stores the call, because a stored call without this entry counts as ended.
    running.set(call.callId, request)
    try {
      const outcome = await run()
      if (!isClaimed(outcome)) running.delete(call.callId)
      return outcome
    } catch (error) {
      running.delete(call.callId)
      ends.remember({ kind: 'release', call })
      throw error
    }
  }

  function purgeSometimes(): void {
    if (now() - purgedAtMs < PURGE_INTERVAL_MS) return
    purgedAtMs = now()
    store.purge().catch((error) => log.warn({ err: error }, 'idempotency keys not purged'))
  }

  async function claim(request: KeyedRequest): Promise<Claimed<Stored>> {
    const { accountId, key, requestHash, isVerified } = request
    if (!lease.isHeld())
      throw new ApiError('not_ready', 'Idempotency keys cannot be claimed at the moment')
    const { model = '', dialect = 'chat' } = request
    const named = request.notary ?? null
    const notary = isVerified ? (named ?? (await options.notary(model, dialect))) : null
    const callId = crypto.randomUUID()
    const call = { accountId, key, callId, requestHash, processId: lease.id(), notary }
    purgeSometimes()
    void ends.retry()
    void adopt()
    const known = await claiming(
      call,
      request,
      (outcome) => outcome === 'claimed',
      () => store.claim(call, RETENTION_SECONDS),
    )
    if (known === 'claimed') return open(call)
    if (!equalBytes(known.requestHash, requestHash)) throw reused()
    if (known.answer !== null) return { kind: 'answer', answer: known.answer }
    const record = isVerified ? await findAnswer(options, known) : null
    if (record !== null) return { kind: 'record', record }
    // After a lost lease, the database knows this process's calls under an id that counts as dead.
    if (known.isRunning || running.has(known.callId)) {
      // The call ran in this process and has ended, but its end could not be stored.
      if (known.processId === lease.id() && !running.has(known.callId)) {
        const over = { accountId, key, callId: known.callId }
        await ends.end(ends.find(over.callId) ?? { kind: 'abandon', call: over })
      }
      throw inProgress()
    }
    if (isVerified)
      return { kind: 'record', record: await concludeVerified(options, known, request) }
    const isTaken = await claiming(
      call,
      request,
      (outcome) => outcome,
      () => store.takeOver(call, known.callId),
    )
    if (!isTaken) throw inProgress()
    return open(call)
  }

  return {
    async claim(request) {
      try {
        return await claim(request)
      } catch (error) {
        const isKnown = error instanceof ApiError || error instanceof ContentUnavailable
        if (isKnown || request.abort.signal.aborted) throw error
        throw new ApiError(
          'not_ready',
          'Idempotency keys cannot be looked up at the moment, try again',
          {
            cause: error,
          },
        )
      }
    },
  }
}

async function findAnswer<Stored extends WholeOrNot>(
  { findRecord }: Pick<IdempotencyOptions<Stored>, 'findRecord'>,
  { callId }: Pick<CallName, 'callId'>,
): Promise<Stored | null> {
  const record = await findRecord(callId)
  return record?.outcome === 'complete' ? record : null
}

/** Throws `idempotency_outcome_unknown` if there is no record, because the completion may exist. */
async function concludeVerified<Stored extends WholeOrNot>(
  options: IdempotencyOptions<Stored>,
  known: KnownCall,
  request: KeyedRequest,
): Promise<Stored> {
  if (known.abandonedForSeconds !== null && known.abandonedForSeconds < SETTLE_SECONDS)
    throw inProgress(SETTLE_SECONDS - known.abandonedForSeconds)
  await options.settleLog(request.abort.signal, known.notary)
  const record = await findAnswer(options, known)
  if (record === null) throw outcomeUnknown()
  return record
}

function reused(): ApiError {
  return new ApiError('idempotency_key_reused', 'This Idempotency-Key was used for another request')
}

function inProgress(retryAfterSeconds = 1): ApiError {
  const message = 'The call with this Idempotency-Key is still running, ask again in a moment'
  return new ApiError('idempotency_in_progress', message, { retryAfterSeconds })
}

function outcomeUnknown(): ApiError {
  const message =
    'The call with this Idempotency-Key was made, or may have been made, but its answer is not complete: look into the history, or use a new key for a new call'
  return new ApiError('idempotency_outcome_unknown', message)
}
