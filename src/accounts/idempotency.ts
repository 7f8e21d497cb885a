import { createHash } from 'node:crypto'
import { z } from 'zod'
import { equalBytes } from '../../attestation/bytes.ts'
import { callerOf } from '../api/authenticate.ts'
import type { RouteContext } from '../api/context.ts'
import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'
import { described, faultIssue } from '../api/schemas.ts'
import type { Logger } from '../observability/logger.ts'
import type { ProcessLease } from '../storage/process-lease.ts'
import type { CallName, IdempotencyStore, KeyedCall, KnownCall } from './idempotency-store.ts'

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

/**
 * Whether it is certain, after this error, that no answer was made that could still come to be
 * known.
 */
export function isWithoutResult(error: unknown): boolean {
  if (error instanceof ValidationError) return true
  return error instanceof ApiError && (error.leavesNoResult || WITHOUT_RESULT.has(error.code))
}

const WITHOUT_RESULT: ReadonlySet<ErrorCode> = new Set([
  'unsupported_model',
  'provider_credential_missing',
  'provider_credential_rejected',
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_timeout',
  'answer_too_large',
  'log_full',
  'overloaded',
  'rate_limit_exceeded',
  'no_available_inference_nodes',
  'node_refused',
  'node_error',
  'node_timeout',
])

/** A call that came with an Idempotency-Key. */
type KeyedRequest = {
  readonly accountId: string
  readonly key: string
  /** SHA-256 of what is asked. */
  readonly requestHash: Uint8Array
  /** Whether the answer is a record, made once and for all; else it is a text that is kept. */
  readonly isVerified: boolean
  /** What a verified one asks for: enclaves may serve different models. */
  readonly model?: string
  /** Aborted when this process may no longer make the call, because others take it for dead. */
  readonly abort: AbortController
}

/**
 * A call that is to be made now. End it with exactly one of its methods; after `fail` the key may
 * be tried again.
 */
export type Claim = {
  readonly kind: 'claimed'
  /** For the context of a verified call. */
  readonly callId: string
  /**
   * The enclave that has to make a verified call, by its notary: its log is looked into when the
   * outcome is not known.
   */
  readonly notary: string | null
  /**
   * The call was answered: with `answer`, or for a verified one with its record (null). Never
   * rejects.
   */
  succeed(answer: string | null): Promise<void>
  /** It was not. Never rejects. */
  fail(error: unknown): Promise<void>
}

/** What becomes of a call with an Idempotency-Key. */
export type Claimed<Stored = unknown> =
  | Claim
  | { readonly kind: 'record'; readonly record: Stored }
  | { readonly kind: 'answer'; readonly answer: string }

/**
 * What is asked of a record here: only a whole completion is an answer; one that was broken off may
 * be made anew.
 */
export type WholeOrNot = { readonly outcome: string }

/** How long an answer is given again, seconds. */
export const RETENTION_SECONDS = 24 * 3_600

/**
 * How long after it was given up a verified call may still end in a record: its enclave has seen by
 * then that the gateway closed the connection, and sealed it or let it go. Far more than that
 * takes.
 */
export const SETTLE_SECONDS = 3

/** Pause between two purges of one process. */
const PURGE_INTERVAL_MS = 60_000

/** Answers calls with the same key once. */
export type Idempotency<Stored = unknown> = {
  /**
   * Claims a key, or gives the answer of the call that had it before. Throws ApiError:
   * `idempotency_key_reused` for another request, `idempotency_in_progress` while that call runs,
   * `idempotency_outcome_unknown`, `not_ready`.
   */
  claim(request: KeyedRequest): Promise<Claimed<Stored>>
}

export type IdempotencyOptions<Stored extends WholeOrNot> = {
  readonly store: IdempotencyStore
  /** The record of a verified call, by the call's id; null while there is none. */
  readonly findRecord: (callId: string) => Promise<Stored | null>
  readonly lease: Pick<ProcessLease, 'id' | 'isHeld' | 'onLost'>
  /** Chooses the enclave for a call, and gives its notary. */
  readonly notary: (model: string) => Promise<string>
  /**
   * Waits until all that the enclave of this notary has sealed until now is committed. Gives the
   * notary of the log that this is true of: another, or null, when no enclave has that one.
   */
  readonly settleLog: (signal: AbortSignal, notary: string | null) => Promise<string | null>
  /** Whether no enclave but those that serve now can ever commit to this database. */
  readonly isOnlyEnclave: () => boolean
  /** Milliseconds, monotonic. */
  readonly now: () => number
  readonly log: Logger
}

/**
 * Idempotency over its store. A verified completion's answer is its record, found by the id of the
 * call, which went through the enclave with it: so it needs no second write, and survives a kill at
 * any moment. A key is given to another try only when no record can come any more.
 */
export function createIdempotency<Stored extends WholeOrNot>(
  options: IdempotencyOptions<Stored>,
): Idempotency<Stored> {
  const { store, lease, now, log } = options
  const running = new Map<string, AbortController>()
  let purgedAtMs = now()
  lease.onLost(() => {
    for (const abort of running.values())
      abort.abort(new ApiError('not_ready', 'This instance was away for too long, try again'))
  })

  function open(call: KeyedCall, request: KeyedRequest): Claim {
    running.set(call.callId, request.abort)
    return {
      kind: 'claimed',
      callId: call.callId,
      notary: call.notary,
      async succeed(answer) {
        if (answer !== null)
          await store
            .keep(call, answer)
            .catch((fault) => log.warn({ err: fault }, 'answer not kept'))
        running.delete(call.callId)
      },
      async fail(error) {
        running.delete(call.callId)
        const end = isWithoutResult(error) ? store.release(call) : store.abandon(call)
        await end.catch((fault) => log.warn({ err: fault }, 'idempotency key not freed'))
      },
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
    const notary = isVerified ? await options.notary(request.model ?? '') : null
    const callId = crypto.randomUUID()
    const call = { accountId, key, callId, requestHash, processId: lease.id(), notary }
    purgeSometimes()
    const known = await store.claim(call, RETENTION_SECONDS)
    if (known === 'claimed') return open(call, request)
    if (!equalBytes(known.requestHash, requestHash)) throw reused()
    if (known.answer !== null) return { kind: 'answer', answer: known.answer }
    const record = isVerified ? await findAnswer(options, known) : null
    if (record !== null) return { kind: 'record', record }
    if (known.isRunning) {
      // What this process cannot be making it could not free when it was over.
      if (known.processId === lease.id() && !running.has(known.callId))
        await store.abandon({ accountId, key, callId: known.callId })
      throw inProgress()
    }
    const late = isVerified ? await concludeVerified(options, known, request) : null
    if (late !== null) return { kind: 'record', record: late }
    if (!(await store.takeOver(call, known.callId))) throw inProgress()
    return open(call, request)
  }

  return {
    async claim(request) {
      try {
        return await claim(request)
      } catch (error) {
        if (error instanceof ApiError || request.abort.signal.aborted) throw error
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

/**
 * A verified call whose gateway died or gave it up: gives its record; or null when it is certain
 * that none will come, so that another call may take its place.
 */
async function concludeVerified<Stored extends WholeOrNot>(
  options: IdempotencyOptions<Stored>,
  known: KnownCall,
  request: KeyedRequest,
): Promise<Stored | null> {
  if (known.abandonedForSeconds !== null && known.abandonedForSeconds < SETTLE_SECONDS)
    throw inProgress(SETTLE_SECONDS - known.abandonedForSeconds)
  const settled = await options.settleLog(request.abort.signal, known.notary)
  const record = await findAnswer(options, known)
  if (record !== null) return record
  if (known.notary !== settled && !options.isOnlyEnclave()) throw outcomeUnknown()
  return null
}

function reused(): ApiError {
  return new ApiError('idempotency_key_reused', 'This Idempotency-Key was used for another request')
}

function inProgress(retryAfterSeconds = 1): ApiError {
  const message = 'The call with this Idempotency-Key is under way, ask again in a moment'
  return new ApiError('idempotency_in_progress', message, { retryAfterSeconds })
}

function outcomeUnknown(): ApiError {
  const message =
    'It is not known what became of the call with this Idempotency-Key: look into the history, or use a new key'
  return new ApiError('idempotency_outcome_unknown', message)
}
