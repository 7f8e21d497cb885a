import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { Receipt } from '#attestation/receipt.ts'
import type { EnclaveFault, Identity, SealedNotice } from '#enclave/protocol/enclave-api.ts'
import { hideCredential } from '#enclave/protocol/hide-credential.ts'
import {
  ApiError,
  asApiError,
  asError,
  type ErrorCode,
  type ValidationError,
} from '../../api/errors.ts'
import { NonceUnknown } from '../../chain/relayer-nonces.ts'
import { readUsage } from '../../chat/chat-tokens.ts'
import type { CompletionAnswer } from '../../enclaves/enclave-client.ts'
import {
  EnclaveError,
  faultErrorOf,
  isOperatorsTrouble,
  outageErrorOf,
} from '../../enclaves/enclave-errors.ts'
import type { EnclaveEvent } from '../../enclaves/enclave-replies.ts'
import { COMMIT_TIMEOUT_MS } from '../../enclaves/peer-completions.ts'
import type { ServiceEnclaves } from '../../enclaves/service-enclaves.ts'
import { type InferenceFacts, inPhase, recordInference } from '../../observability/call-scope.ts'
import type { Logger } from '../../observability/logger.ts'
import { LruMap } from '../../runtime/lru-map.ts'
import { type CallContext, encodeCallContext } from '../call-context.ts'
import { CommitError, type CommitErrorCode } from '../commit-error.ts'
import type { Committer } from '../commits/committer.ts'
import { dialectOf } from '../records/record-text.ts'
import type { AnsweredRecord } from '../records/records-store.ts'
import { type ChosenCredential, chooseCredential } from './completion-call.ts'

export type VerifiedCall = {
  readonly model: string
  readonly dialect: DialectName
  /** The caller's headers that the enclave may hash. The names are in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** The caller's exact bytes. The enclave receives them unparsed. */
  readonly body: Uint8Array
  readonly callerCredential: string | null
  readonly context: CallContext
  /** Notary of the only enclave that may make the completion. Null for any enclave. */
  readonly notary: string | null
  /** True if the caller named `notary`. */
  readonly isNotaryDemanded: boolean
  /** Aborted when the caller leaves or the gateway stops. The reason is the error to throw. */
  readonly abort: AbortController
}

/**
 * Chunks come first, then the record or a fault. `last` is the last chunk in canonical JSON, to
 * which the gateway adds the proof.
 */
type VerifiedEvent =
  | { readonly kind: 'chunks'; readonly bytes: Uint8Array }
  | { readonly kind: 'fault'; readonly error: ApiError }
  | { readonly kind: 'record'; readonly record: AnsweredRecord; readonly last: string }

/**
 * The enclave seals completions, and the committer stores them. `complete` and `stream` throw
 * ApiError, ValidationError (when the enclave refuses a body) and the reason of `abort`.
 */
export type VerifiedCompletions = {
  /** Resolves when the record is stored and its anchor is signed. */
  complete(call: VerifiedCall): Promise<AnsweredRecord>
  /**
   * Resolves when the answer begins. If the caller stops iterating, the call to the provider ends.
   */
  stream(call: VerifiedCall): Promise<AsyncIterable<VerifiedEvent>>
  /** Throws ApiError `not_ready` while sealed completions cannot be stored. */
  requireCommits(): void
  /** Resolves when the record is stored and its anchor is signed. */
  recordOf(
    sealed: Pick<SealedNotice, 'notary' | 'index'>,
    abort: AbortController,
  ): Promise<AnsweredRecord>
}

/**
 * The gateway accepts calls until commits have failed for this long. A restarted database works
 * again within this time. Completions that are sealed meanwhile are committed late.
 */
export const COMMITS_FAILING_MAX_MS = 10_000

type Chosen = Pick<Identity, 'notary' | 'boot_configuration'>

type VerifiedCompletionsOptions = {
  readonly enclaves: Pick<ServiceEnclaves, 'complete'>
  readonly committer: Pick<Committer, 'waitFor' | 'isStandby' | 'status'>
  /** The operator's credentials, by provider name. */
  readonly credentials: () => ReadonlyMap<string, string>
  /** Records the results of calls with an operator's credential. */
  readonly outcomes: Pick<ModelOutcomes, 'recordServed' | 'recordMissing'>
  /** Milliseconds, to measure the phases of a call. */
  readonly now: () => number
  readonly log: Logger
}

export function createVerifiedCompletions(
  options: VerifiedCompletionsOptions,
): VerifiedCompletions {
  return {
    async complete(call) {
      const { answer, chosen } = await ask(options, call)
      if (answer.kind !== 'sealed') throw unexpected(options, call, answer, chosen)
      const record = await commitOf(options, call, answer.notice)
      if (record.outcome !== 'complete')
        throw new ApiError('provider_error', 'The provider ended its answer early', {
          mayBeMade: true,
        })
      recordServed(options, call)
      return record
    },
    async stream(call) {
      const { answer, chosen } = await ask(options, call)
      if (answer.kind !== 'stream') throw unexpected(options, call, answer, chosen)
      return relay(options, call, { events: answer.events, chosen })
    },
    requireCommits: () => requireCommits(options),
    recordOf: (sealed, abort) => commitOf(options, { abort }, sealed),
  }
}

/**
 * Throws ApiError while commits fail, because a provider must not be paid for an answer that cannot
 * be delivered.
 */
function requireCommits({ committer }: Pick<VerifiedCompletionsOptions, 'committer'>): void {
  const { phase, failingForMs, fault } = committer.status()
  if (
    phase === 'refusing' ||
    fault?.name === NonceUnknown.name ||
    failingForMs > COMMITS_FAILING_MAX_MS
  )
    throw new ApiError(...COMMIT_ERRORS.log_diverged, { leavesNoResult: true })
}

async function ask(
  options: VerifiedCompletionsOptions,
  call: VerifiedCall,
): Promise<{ readonly answer: CompletionAnswer; readonly chosen: ChosenCredential }> {
  requireCommits(options)
  const { enclaves, committer, now } = options
  const { callerCredential, notary, context, body, abort, model, dialect, headers } = call
  const own = options.credentials()
  let chosen = NO_CREDENTIAL
  try {
    const text = encodeCallContext(context)
    const callFor = ({ boot_configuration: boot, notary: chosenNotary }: Chosen) => {
      chosen = chooseCredential({ model, callerCredential, dialect }, boot.providers, own)
      recordInference(() => ({ provider: chosen.provider }))
      return {
        context: text,
        provider: chosen.provider,
        credential: chosen.credential,
        is_callers: callerCredential !== null,
        ...(dialect === 'chat' ? {} : { dialect, headers }),
        ...(context.callId === undefined ? {} : { outlives_gateway: true }),
        ...(committer.isStandby(chosenNotary) ? { tells_completion: true } : {}),
      }
    }
    const answer = await inPhase(
      { phase: 'enclave', now },
      enclaves.complete({ model, dialect, notary, callFor }, body, abort.signal),
    )
    return { answer, chosen }
  } catch (error) {
    if (call.isNotaryDemanded && error instanceof EnclaveError && !error.wasSent)
      throw new ApiError(
        'notary_mismatch',
        `The enclave ${notary} takes no calls here: choose one of GET /v1/notaries`,
        { leavesNoResult: true },
      )
    throw callerErrorOf(options, call, error)
  }
}

/** For a call that was not sent to an enclave. */
const NO_CREDENTIAL: ChosenCredential = { provider: '', credential: null, isOperators: false }

async function* relay(
  options: VerifiedCompletionsOptions,
  call: VerifiedCall,
  {
    events,
    chosen,
  }: { readonly events: AsyncIterable<EnclaveEvent>; readonly chosen: ChosenCredential },
): AsyncGenerator<VerifiedEvent> {
  let notice: SealedNotice | null = null
  let last: string | null = null
  let isFaulty = false
  try {
    for await (const event of events) {
      if (event.kind === 'chunks') yield event
      else if (event.kind === 'last') last = event.chunk
      else if (event.kind === 'sealed') notice = event.notice
      else {
        isFaulty = true
        yield {
          kind: 'fault',
          // The stream began with a chunk, so the provider may have made a completion.
          error: asApiError(
            refusal(options, call, { fault: { ...event.fault, may_be_made: true }, chosen }),
          ),
        }
      }
    }
  } catch (error) {
    throw callerErrorOf(options, call, error)
  }
  if (isFaulty) return
  if (notice?.outcome === 'complete') {
    if (last === null)
      throw callerErrorOf(options, call, new EnclaveError('protocol', 'expected a last event'))
    const record = await commitOf(options, call, notice)
    recordServed(options, call)
    yield { kind: 'record', record, last }
  } else
    yield {
      kind: 'fault',
      error: new ApiError('provider_error', 'The caller did not read the whole answer', {
        mayBeMade: true,
      }),
    }
}

/** A call with the caller's own credential shows nothing about the operator's credential. */
function recordServed({ outcomes }: VerifiedCompletionsOptions, call: VerifiedCall): void {
  if (call.callerCredential === null) outcomes.recordServed(call.model)
}

async function commitOf(
  { committer, now }: VerifiedCompletionsOptions,
  { abort }: Pick<VerifiedCall, 'abort'>,
  { notary, index, completion }: Omit<SealedNotice, 'outcome'>,
): Promise<AnsweredRecord> {
  const timer = setTimeout(() => abort.abort(commitDelayed()), COMMIT_TIMEOUT_MS)
  try {
    const record = await inPhase(
      { phase: 'commit', now },
      committer.waitFor(notary, index, abort.signal, completion),
    )
    recordInference(() => factsOfRecord(record))
    return record
  } catch (error) {
    throw error instanceof CommitError ? new ApiError(...COMMIT_ERRORS[error.code]) : error
  } finally {
    clearTimeout(timer)
  }
}

/** Returns facts for logs, metrics and traces. They contain no text of the call. */
function factsOfRecord({
  receipt,
  response,
  usage: stated,
}: Pick<AnsweredRecord, 'receipt' | 'response' | 'usage'>): InferenceFacts {
  const { provider, model, started_at, finished_at } = JSON.parse(receipt) as ReceiptFacts
  const usage = response === null ? stated : readUsage(response, dialectOf({ receipt }))
  return {
    provider: provider.name,
    ...(model.returned === null ? {} : { responseModel: model.returned }),
    ...(usage === null
      ? {}
      : { inputTokens: usage.prompt_tokens, outputTokens: usage.completion_tokens }),
    enclave: { startedAtMs: started_at, finishedAtMs: finished_at },
  }
}

/** The committer has checked the receipt's form. */
type ReceiptFacts = Pick<Receipt, 'provider' | 'model' | 'started_at' | 'finished_at'>

const COMMIT_ERRORS: Readonly<Record<CommitErrorCode, readonly [ErrorCode, string]>> = {
  notary_gone: [
    'completion_lost',
    'The enclave was restarted before the completion was stored, try again',
  ],
  log_diverged: ['not_ready', 'Completions cannot be stored at the moment'],
  stopped: ['shutting_down', 'This instance is shutting down, try again'],
}

function commitDelayed(): ApiError {
  return new ApiError(
    'commit_delayed',
    'The completion is signed but not stored yet: it will be in the history, unless its enclave stops first',
  )
}

function unexpected(
  options: VerifiedCompletionsOptions,
  call: VerifiedCall,
  answer: CompletionAnswer,
  chosen: ChosenCredential,
): Error {
  if (answer.kind === 'fault') {
    const refused = refusal(options, call, { fault: answer.fault, chosen })
    const isUnknown =
      refused instanceof ApiError && refused.code === 'provider_refused' && refused.status === 404
    if (isUnknown && call.callerCredential === null) options.outcomes.recordMissing(call.model)
    return refused
  }
  const error = callerErrorOf(
    options,
    call,
    new EnclaveError('protocol', `unexpected answer of kind ${answer.kind}`),
  )
  // The gateway does not read this stream. The abort closes its connection.
  call.abort.abort(error)
  return error
}

/** The message may repeat a provider's words, so it is not logged. A refused answer is counted. */
function refusal(
  { log }: VerifiedCompletionsOptions,
  { context }: VerifiedCall,
  { fault, chosen }: { readonly fault: EnclaveFault; readonly chosen: ChosenCredential },
): ApiError | ValidationError {
  const { refused_reason: refusedReason } = fault
  if (refusedReason !== undefined) recordInference(() => ({ refusedReason }))
  const error = faultErrorOf(hideCredential(fault, chosen), chosen.isOperators)
  if (isOperatorsTrouble(error)) {
    const { code, status } = fault
    log.error(
      { requestId: context.requestId, provider: chosen.provider, code, status },
      'enclave fault',
    )
  }
  return error
}

function callerErrorOf(
  { log }: VerifiedCompletionsOptions,
  { context }: VerifiedCall,
  error: unknown,
): Error {
  if (!(error instanceof EnclaveError)) return asError(error)
  log.warn({ requestId: context.requestId, err: error }, 'enclave call failed')
  return outageErrorOf(error)
}

/** Maximum number of served models, and of missing models, in memory. */
const OUTCOMES_MAX = 1_000
/** How long a model counts as missing after its provider answered 404. */
const MISSING_MS = 10 * 60_000

/** Outcomes of calls with the operator's credentials, by model, in memory. */
export type ModelOutcomes = {
  recordServed(model: string): void
  /** Call this when the provider answered 404 for the model. */
  recordMissing(model: string): void
  /** Models that made completions, without models that were later reported as missing. */
  served(): readonly string[]
  isMissing(model: string): boolean
}

/** `now` returns milliseconds. */
export function createModelOutcomes(now: () => number): ModelOutcomes {
  const served = new LruMap<string, true>(OUTCOMES_MAX)
  const missing = new LruMap<string, number>(OUTCOMES_MAX)
  const isMissing = (model: string) =>
    now() - (missing.get(model) ?? Number.NEGATIVE_INFINITY) < MISSING_MS
  return {
    recordServed(model) {
      missing.delete(model)
      // The name of a fine-tuned model shows its owner, and the list is public.
      if (model.startsWith('ft:')) return
      served.set(model, true)
    },
    recordMissing(model) {
      served.delete(model)
      missing.set(model, now())
    },
    served: () => [...served].map(([model]) => model),
    isMissing,
  }
}
