import { AsyncLocalStorage } from 'node:async_hooks'

/** What a call spends its time on, beside our own work. */
const PHASES = [
  /** Looking up the API key. */
  'authenticate',
  /**
   * Until the enclave begins to answer: for a stream the provider's first byte, else its whole
   * answer, sealed.
   */
  'enclave',
  /** From the end of the answer until its record and anchor are stored. */
  'commit',
  /** Waiting for a node, and for its first token. */
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
 * A call to the API that is over, however it ended. Nothing in it is the caller's text but `method`
 * and names of models.
 */
export type CallReport = {
  readonly method: string
  /** The router's pattern; null where nothing is. */
  readonly route: string | null
  /** CALLER_LEFT_STATUS (499) where no answer was sent. */
  readonly status: number
  /**
   * The error that the caller got; null for none, and for faults of a request's form (422). Of a
   * stream, its error event.
   */
  readonly error: { readonly code: string; readonly status: number } | null
  /** Whether the answer was sent to its end, be it an error. */
  readonly isWhole: boolean
  readonly requestId: string
  readonly startedAtMs: number
  readonly durationMs: number
  /** Until the answer's head went out; null when none did. */
  readonly headMs: number | null
  /** Until a stream's first event, comments not counted; null for other answers. */
  readonly firstEventMs: number | null
  readonly phases: readonly PhaseReport[]
  /** Empty where nothing was inferred. */
  readonly inference: InferenceFacts
}

/**
 * What a call inferred, and with what. Names of models are the caller's, checked for their form; no
 * text of a prompt or answer.
 */
export type InferenceFacts = {
  readonly operation?: 'chat' | 'embeddings' | 'images' | 'search'
  readonly model?: string | undefined
  readonly responseModel?: string
  /** Its name in the enclaves' table, `nodes`, or `upstream` for what the operator configured. */
  readonly provider?: string
  /** Which of the account's limits refused it. */
  readonly limit?: 'requests' | 'tokens'
  readonly inputTokens?: number
  readonly outputTokens?: number
  /**
   * From the enclave's receipt: when it began and ended to work for the call, Unix milliseconds of
   * its clock.
   */
  readonly enclave?: { readonly startedAtMs: number; readonly finishedAtMs: number }
}

/**
 * Called with every call when it comes in, and what that gives, when the call is over. It may not
 * throw.
 */
export type CallObserver = { begin(call: BegunCall): CallWatch }

type BegunCall = {
  readonly startedAtMs: number
  /** The caller's W3C `traceparent` header, as it came; null without one. */
  readonly traceparent: string | null
}

type CallWatch = {
  /**
   * What others who work for this call are to name as its W3C trace context; null when it is not
   * traced.
   */
  readonly traceparent: string | null
  end(report: CallReport): void
}

/** What one answered call holds for the time that it takes. */
export type CallScope = {
  readonly phases: PhaseReport[]
  inference: InferenceFacts
  readonly traceparent: string | null
}

const scopes = new AsyncLocalStorage<CallScope>()

/**
 * Runs a call in a scope of its own, so that what it awaits through `timed`, and what it notes, is
 * kept there.
 */
export function openScope<Result>(
  traceparent: string | null,
  run: (scope: CallScope) => Result,
): { readonly scope: CallScope; readonly result: Result } {
  const scope: CallScope = { phases: [], inference: {}, traceparent }
  return { scope, result: scopes.run(scope, () => run(scope)) }
}

/**
 * Records more of the inference that is made for this call. `read` is called only where a call has
 * observers; it may not throw.
 */
export function recordInference(read: () => InferenceFacts): void {
  const scope = scopes.getStore()
  if (scope === undefined) return
  scope.inference = { ...scope.inference, ...read() }
}

/** W3C trace context of the call that this is run for; null when it is not traced. */
export function currentTraceparent(): string | null {
  return scopes.getStore()?.traceparent ?? null
}

/**
 * Awaits the work of a phase that has just begun, and notes its time with the call that this is run
 * for; outside of a call it is only awaited.
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

/** `run`, each time as a phase. */
export function timed<Parameters extends readonly unknown[], Result>(
  phase: { readonly phase: Phase; readonly now: () => number },
  run: (...parameters: Parameters) => Promise<Result>,
): (...parameters: Parameters) => Promise<Result> {
  return async (...parameters) => inPhase(phase, run(...parameters))
}
