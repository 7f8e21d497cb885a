import { AsyncLocalStorage } from 'node:async_hooks'

/** Phases in which a call waits for other parts or services. */
const PHASES = [
  /** The API key is looked up. */
  'authenticate',
  /**
   * The time until the enclave begins its answer. If the answer is a stream, the phase ends at the
   * provider's first byte. Otherwise it ends when the whole sealed answer has arrived.
   */
  'enclave',
  /** The time from the end of the answer until its record and anchor are stored. */
  'commit',
  /** The call waits for a node and for the node's first token. */
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
 * An API call that has ended in any way. Of its members, only `method` and the names of models are
 * text from the caller.
 */
export type CallReport = {
  readonly method: string
  /** The pattern of the route in the router. Null when no route matches. */
  readonly route: string | null
  /** CALLER_LEFT_STATUS (499) when no answer was sent. */
  readonly status: number
  /**
   * The error that the caller got. For a stream, it is the error in the error event. Null if there
   * was no error, and for faults in a request's form (422).
   */
  readonly error: { readonly code: string; readonly status: number } | null
  /** True if the answer was sent to its end. A complete error answer counts too. */
  readonly isWhole: boolean
  readonly requestId: string
  readonly startedAtMs: number
  readonly durationMs: number
  /** Time until the answer's head was sent. Null when no head was sent. */
  readonly headMs: number | null
  /**
   * Time until a stream's first event. Comments do not count. Null for answers that are not
   * streams.
   */
  readonly firstEventMs: number | null
  readonly phases: readonly PhaseReport[]
  /** Empty when the call made no inference. */
  readonly inference: InferenceFacts
}

/**
 * Facts about a call's inference. The names of models are text from the caller, and their form was
 * checked. These facts contain no text of a prompt or answer.
 */
export type InferenceFacts = {
  readonly operation?: 'chat' | 'embeddings' | 'images' | 'search'
  readonly model?: string | undefined
  readonly responseModel?: string
  /**
   * The provider's name in the enclaves' table. It is `nodes` for nodes, and `upstream` for a
   * service that the operator configured.
   */
  readonly provider?: string
  /** The limit of the account because of which the call was refused. */
  readonly limit?: 'requests' | 'tokens'
  readonly inputTokens?: number
  readonly outputTokens?: number
  /**
   * When the enclave began and ended its work for the call, as its receipt states. Unix
   * milliseconds by the enclave's clock.
   */
  readonly enclave?: { readonly startedAtMs: number; readonly finishedAtMs: number }
}

/**
 * `begin` is called for every incoming call. It returns a watch, whose `end` is called when the
 * call has ended. `begin` and `end` must not throw.
 */
export type CallObserver = { begin(call: BegunCall): CallWatch }

type BegunCall = {
  readonly startedAtMs: number
  /** The caller's W3C `traceparent` header, unchanged. Null when the header is missing. */
  readonly traceparent: string | null
}

type CallWatch = {
  /**
   * The W3C trace context that is sent to other programs that work on this call. Null when the call
   * is not traced.
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
 * Adds facts about the current call's inference. `read` runs only inside a scope, and only observed
 * calls have a scope. `read` must not throw.
 */
export function recordInference(read: () => InferenceFacts): void {
  const scope = scopes.getStore()
  if (scope === undefined) return
  scope.inference = { ...scope.inference, ...read() }
}

/** Returns the W3C trace context of the current call. Null when the call is not traced. */
export function currentTraceparent(): string | null {
  return scopes.getStore()?.traceparent ?? null
}

/**
 * Waits for the work of a phase that has just begun, and records its time in the current call's
 * scope. Outside a call, it only waits.
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

/** Returns a function that does the same as `run` and records each run as a phase. */
export function timed<Parameters extends readonly unknown[], Result>(
  phase: { readonly phase: Phase; readonly now: () => number },
  run: (...parameters: Parameters) => Promise<Result>,
): (...parameters: Parameters) => Promise<Result> {
  return async (...parameters) => inPhase(phase, run(...parameters))
}
