import { AsyncLocalStorage } from 'node:async_hooks'

/** Phases in which a call waits for other parts or services. */
const PHASES = [
  /** The API key is looked up. */
  'authenticate',
  /**
   * Until the enclave begins its answer. For a stream this is the provider's first byte; otherwise
   * it is the whole sealed answer.
   */
  'enclave',
  /** The time from the end of the answer until its record and anchor are stored. */
  'commit',
  /** Waiting for a node and its first token. */
  'node',
] as const

type Phase = (typeof PHASES)[number]

/** Times are milliseconds of the app's clock. */
export type PhaseReport = {
  readonly phase: Phase
  readonly startedAtMs: number
  readonly durationMs: number
  readonly isFailed: boolean
}

/**
 * An API call that has ended in any way. Only `method` and names of models are the caller's text.
 */
export type CallReport = {
  readonly method: string
  /** The router's pattern; null when no route matches. */
  readonly route: string | null
  /** CALLER_LEFT_STATUS (499) when no answer was sent. */
  readonly status: number
  /**
   * The error that the caller got; for a stream, its error event. Null without an error, and for
   * faults of a request's form (422).
   */
  readonly error: { readonly code: string; readonly status: number } | null
  /** Whether the answer was sent to its end. True for a complete error answer too. */
  readonly isWhole: boolean
  readonly requestId: string
  readonly startedAtMs: number
  readonly durationMs: number
  /** Time until the answer's head was sent; null when no head was sent. */
  readonly headMs: number | null
  /** Time until a stream's first event, without comments; null for answers that are not streams. */
  readonly firstEventMs: number | null
  readonly phases: readonly PhaseReport[]
  /** Empty when the call made no inference. */
  readonly inference: InferenceFacts
}

/**
 * Facts about a call's inference. Names of models are the caller's text, checked for their form. No
 * text of a prompt or answer is here.
 */
export type InferenceFacts = {
  readonly operation?: 'chat' | 'embeddings' | 'images' | 'search'
  readonly model?: string | undefined
  readonly responseModel?: string
  /**
   * The provider's name in the enclaves' table, or `nodes`, or `upstream` for a service that the
   * operator configured.
   */
  readonly provider?: string
  /** The account's limit that refused the call. */
  readonly limit?: 'requests' | 'tokens'
  readonly inputTokens?: number
  readonly outputTokens?: number
  /**
   * From the enclave's receipt: when the enclave began and ended its work for the call, Unix
   * milliseconds of its clock.
   */
  readonly enclave?: { readonly startedAtMs: number; readonly finishedAtMs: number }
}

/**
 * `begin` is called for every incoming call. It gives a watch, whose `end` is called when the call
 * has ended. Neither may throw.
 */
export type CallObserver = { begin(call: BegunCall): CallWatch }

type BegunCall = {
  readonly startedAtMs: number
  /** The caller's W3C `traceparent` header, unchanged; null when it is missing. */
  readonly traceparent: string | null
}

type CallWatch = {
  /**
   * The W3C trace context for other programs that work on this call; null when the call is not
   * traced.
   */
  readonly traceparent: string | null
  end(report: CallReport): void
}

/** Data that is kept while a call runs. */
export type CallScope = {
  readonly phases: PhaseReport[]
  inference: InferenceFacts
  readonly traceparent: string | null
}

const scopes = new AsyncLocalStorage<CallScope>()

/**
 * Runs a call in its own scope. The scope collects the call's phases (`timed`) and its inference
 * facts.
 */
export function openScope<Result>(
  traceparent: string | null,
  run: (scope: CallScope) => Result,
): { readonly scope: CallScope; readonly result: Result } {
  const scope: CallScope = { phases: [], inference: {}, traceparent }
  return { scope, result: scopes.run(scope, () => run(scope)) }
}

/**
 * Adds facts about the current call's inference. `read` runs only inside a scope, which only
 * observed calls have. It may not throw.
 */
export function recordInference(read: () => InferenceFacts): void {
  const scope = scopes.getStore()
  if (scope === undefined) return
  scope.inference = { ...scope.inference, ...read() }
}

/** W3C trace context of the current call; null when the call is not traced. */
export function currentTraceparent(): string | null {
  return scopes.getStore()?.traceparent ?? null
}

/**
 * Awaits the work of a phase that has just begun, and records its time in the current call's scope.
 * Outside a call, the work is only awaited.
 */
export async function inPhase<Result>(
  { phase, now }: { readonly phase: Phase; readonly now: () => number },
  work: Promise<Result>,
): Promise<Result> {
  const scope = scopes.getStore()
  const startedAtMs = now()
  let isFailed = true
  try {
    const result = await work
    isFailed = false
    return result
  } finally {
    scope?.phases.push({ phase, startedAtMs, durationMs: now() - startedAtMs, isFailed })
  }
}

/** Gives `run` as a function that records each of its runs as a phase. */
export function timed<Parameters extends readonly unknown[], Result>(
  phase: { readonly phase: Phase; readonly now: () => number },
  run: (...parameters: Parameters) => Promise<Result>,
): (...parameters: Parameters) => Promise<Result> {
  return async (...parameters) => inPhase(phase, run(...parameters))
}
