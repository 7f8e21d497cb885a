import type { Receipt } from '../../../attestation/receipt.ts'
import { hideCredential } from '../../../enclave/protocol/hide-credential.ts'
import type { EnclaveFault, Identity, SealedNotice } from '../../../enclave/protocol/messages.ts'
import {
  ApiError,
  asApiError,
  asError,
  type ErrorCode,
  type ValidationError,
} from '../../api/errors.ts'
import { NonceUnknown } from '../../chain/relayer-nonces.ts'
import type { ChatRequest } from '../../chat/chat-request.ts'
import { readUsage } from '../../chat/chat-tokens.ts'
import type { CompletionAnswer } from '../../enclaves/enclave-client.ts'
import {
  EnclaveError,
  faultErrorOf,
  isOperatorsTrouble,
  outageErrorOf,
} from '../../enclaves/enclave-errors.ts'
import type { EnclavePool } from '../../enclaves/enclave-pool.ts'
import type { EnclaveEvent } from '../../enclaves/enclave-replies.ts'
import { type InferenceFacts, inPhase, recordInference } from '../../observability/call-scope.ts'
import type { Logger } from '../../observability/logger.ts'
import { LruMap } from '../../runtime/lru-map.ts'
import { type CallContext, encodeCallContext } from '../call-context.ts'
import { CommitError, type CommitErrorCode } from '../commit-error.ts'
import type { Committer } from '../commits/committer.ts'
import type { AnsweredRecord } from '../records/records-store.ts'
import { type ChosenCredential, chooseCredential } from './completion-call.ts'

/** A valid call for a verified completion. */
export type VerifiedCall = {
  readonly request: Pick<ChatRequest, 'model'>
  /** The caller's exact bytes; these, and not a parsed form of them, go to the enclave. */
  readonly body: Uint8Array
  readonly callerCredential: string | null
  readonly context: CallContext
  /** The only enclave that may make it, by its notary; null: any. */
  readonly notary: string | null
  /** Aborted, with the error to throw, when the caller leaves or the gateway stops. */
  readonly abort: AbortController
}

/**
 * What a streamed call gives, in order: chunks, then its record with the last chunk, which is to
 * carry the proof (canonical JSON text; null from an enclave that gave all of them out); or a
 * fault, after which there is no record.
 */
type VerifiedEvent =
  | { readonly kind: 'chunks'; readonly bytes: Uint8Array }
  | { readonly kind: 'fault'; readonly error: ApiError }
  | { readonly kind: 'record'; readonly record: AnsweredRecord; readonly last: string | null }

/**
 * Verified completions: what the enclave sealed and the committer stored. Both methods throw
 * ApiError, ValidationError (what the enclave refuses in a body) and the abort's reason.
 */
export type VerifiedCompletions = {
  /** Makes a completion and gives its record, once that is stored and its anchor signed. */
  complete(call: VerifiedCall): Promise<AnsweredRecord>
  /**
   * The same, streamed; resolves when the enclave begins to answer. Leaving the iteration ends the
   * provider's call.
   */
  stream(call: VerifiedCall): Promise<AsyncIterable<VerifiedEvent>>
  /** Throws ApiError `not_ready` while what is sealed could not be stored. */
  requireCommits(): void
  /** Gives the record of a sealed completion, once that is stored and its anchor signed. */
  recordOf(
    sealed: Pick<SealedNotice, 'notary' | 'index'>,
    abort: AbortController,
  ): Promise<AnsweredRecord>
}

/**
 * How long a sealed completion may wait for its commit. After that its caller gets an error, but it
 * stays sealed, and is committed later.
 */
const COMMIT_TIMEOUT_MS = 60_000

/**
 * How long commits may have failed before no more calls are taken: a database that is restarted is
 * back by then, and what is sealed meanwhile is committed late, but not lost.
 */
export const COMMITS_FAILING_MAX_MS = 10_000

type VerifiedCompletionsOptions = {
  readonly enclaves: Pick<EnclavePool, 'complete'>
  readonly committer: Pick<Committer, 'waitFor' | 'isStandby' | 'status'>
  /** The operator's credentials by provider name. */
  readonly credentials: () => ReadonlyMap<string, string>
  /** Called with the outcome of calls with these credentials, by model. */
  readonly outcomes: Pick<ModelOutcomes, 'recordServed' | 'recordMissing'>
  /** Milliseconds, for the phases of a call. */
  readonly now: () => number
  readonly log: Logger
}

/** Service of verified completions, without any knowledge of HTTP. */
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

/** Before the provider is paid for an answer that cannot be given. */
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
  const { callerCredential, notary, context, body, abort } = call
  const { model } = call.request
  const own = options.credentials()
  let chosen = NO_CREDENTIAL
  try {
    const text = encodeCallContext(context)
    const callFor = ({ boot_configuration: boot, notary: chosenNotary }: Identity) => {
      chosen = chooseCredential({ model, callerCredential }, boot.providers, own)
      recordInference(() => ({ provider: chosen.provider }))
      return {
        context: text,
        provider: chosen.provider,
        credential: chosen.credential,
        is_callers: callerCredential !== null,
        ...(context.callId === undefined ? {} : { outlives_gateway: true }),
        ...(committer.isStandby(chosenNotary) ? { tells_completion: true } : {}),
      }
    }
    const answer = await inPhase(
      { phase: 'enclave', now },
      enclaves.complete({ model, notary, callFor }, body, abort.signal),
    )
    return { answer, chosen }
  } catch (error) {
    throw callerErrorOf(options, call, error)
  }
}

/** Of a call that no enclave was asked to make. */
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
          // A stream begins with its first chunk.
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

/** A call with its caller's own credential shows nothing about the operator's. */
function recordServed({ outcomes }: VerifiedCompletionsOptions, call: VerifiedCall): void {
  if (call.callerCredential === null) outcomes.recordServed(call.request.model)
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

/**
 * What log, metrics and traces get of a verified completion: what its receipt says, and its usage;
 * none of its text.
 */
function factsOfRecord({
  receipt,
  response,
  usage: stated,
}: Pick<AnsweredRecord, 'receipt' | 'response' | 'usage'>): InferenceFacts {
  const { provider, model, started_at, finished_at } = JSON.parse(receipt) as ReceiptFacts
  const usage = response === null ? statedUsage(stated) : readUsage(response)
  return {
    provider: provider.name,
    ...(model.returned === null ? {} : { responseModel: model.returned }),
    ...(usage === null ? {} : { inputTokens: usage.prompt, outputTokens: usage.answer }),
    enclave: { startedAtMs: started_at, finishedAtMs: finished_at },
  }
}

/** An encrypted call has no response here; its enclave stated the usage. */
function statedUsage(usage: AnsweredRecord['usage']): ReturnType<typeof readUsage> {
  return usage && { prompt: usage.prompt_tokens, answer: usage.completion_tokens }
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
    if (isUnknown && call.callerCredential === null)
      options.outcomes.recordMissing(call.request.model)
    return refused
  }
  const error = callerErrorOf(
    options,
    call,
    new EnclaveError('protocol', `unexpected answer of kind ${answer.kind}`),
  )
  // A stream that will not be read is ended here, or it would hold its connection.
  call.abort.abort(error)
  return error
}

/**
 * The fault as the caller gets it. Its message may repeat a provider's words, so it is not logged.
 */
function refusal(
  { log }: VerifiedCompletionsOptions,
  { context }: VerifiedCall,
  { fault, chosen }: { readonly fault: EnclaveFault; readonly chosen: ChosenCredential },
): ApiError | ValidationError {
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

/**
 * Ids that are remembered, of each kind; beyond it the one that was longest not used is forgotten.
 */
const OUTCOMES_MAX = 1_000
/** How long a provider's word that it does not have a model is held against it. */
const MISSING_MS = 10 * 60_000

/**
 * What became of calls with the operator's credentials, by model. Lasts as long as this process.
 */
export type ModelOutcomes = {
  /** A completion of the model was made. */
  recordServed(model: string): void
  /** The provider said 404. */
  recordMissing(model: string): void
  /** Models of which completions were made, and that were not missing since. */
  served(): readonly string[]
  isMissing(model: string): boolean
}

/** A memory of nothing. `now`: milliseconds. */
export function createModelOutcomes(now: () => number): ModelOutcomes {
  const served = new LruMap<string, true>(OUTCOMES_MAX)
  const missing = new LruMap<string, number>(OUTCOMES_MAX)
  const isMissing = (model: string) =>
    now() - (missing.get(model) ?? Number.NEGATIVE_INFINITY) < MISSING_MS
  return {
    recordServed(model) {
      missing.delete(model)
      // The list is public, and the name of a fine-tuned model says whose it is.
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
