import { AsyncLocalStorage } from 'node:async_hooks'

/** Phases in which a call waits for other parts or services. */
const PHASES = [
  'authenticate',
  /** Until a stream's first byte from the provider, or until the whole sealed answer. */
  'enclave',
  /** From the end of the answer until its record and anchor are stored. */
  'commit',
  /** Until the node's first token. */
  'node',
] as const

type Phase = (typeof PHASES)[number]

/** Milliseconds of the app's clock. */
export type PhaseReport = {
  readonly phase: Phase
  readonly startedAtMs: number
  readonly durationMs: number
  readonly isFailed: boolean
}

/** An API call that has ended. Only `method` and the names of models are text from the caller. */
export type CallReport = {
  readonly method: string
  /** The router's pattern. Null when no route matches. */
  readonly route: string | null
  /** CALLER_LEFT_STATUS (499) when no answer was sent. */
  readonly status: number
  /**
   * The error that the caller got, in the answer or in a stream's error event. Null if there was no
   * error, and when the request had a wrong form (422).
   */
  readonly error: { readonly code: string; readonly status: number } | null
  /** True if the answer, which may be an error, was sent to its end. */
  readonly isWhole: boolean
  readonly requestId: string
  readonly startedAtMs: number
  readonly durationMs: number
  /** Time until the answer's head was sent. Null when no head was sent. */
  readonly headMs: number | null
  /** Time until a stream's first event. SSE comments do not count. Null for other answers. */
  readonly firstEventMs: number | null
  readonly phases: readonly PhaseReport[]
  /** Empty when no facts were recorded (`recordInference`). */
  readonly inference: InferenceFacts
}

/**
 * Contains no text of a prompt or answer. The names of models are text from the caller, but their
 * form was checked.
 */
export type InferenceFacts = {
  readonly operation?: 'chat' | 'embeddings' | 'images' | 'search'
  readonly model?: string | undefined
  readonly responseModel?: string
  /**
   * The name in the enclaves' provider table, `nodes` for connected nodes, or `upstream` for a
   * service that the operator configured.
   */
  readonly provider?: string
  /** The account's limit that refused the call. */
  readonly limit?: 'requests' | 'tokens'
  /** Why the enclave refused the provider's answer: the code of a FormatError. */
  readonly refusedReason?: string
  readonly inputTokens?: number
  readonly outputTokens?: number
  /**
   * The enclave's work for the call, from its receipt. Unix milliseconds of the enclave's clock.
   */
  readonly enclave?: { readonly startedAtMs: number; readonly finishedAtMs: number }
}

/**
 * `begin` is called for every incoming call, and `end` at the end of the call. Neither may throw.
 */
export type CallObserver = { begin(call: BegunCall): CallWatch }

type BegunCall = {
  readonly startedAtMs: number
  /** The caller's header, unchanged. Null when the header is missing. */
  readonly traceparent: string | null
}

type CallWatch = {
  /**
   * The W3C trace context for programs that work on this call. Null when the call is not traced.
   */
  readonly traceparent: string | null
  end(report: CallReport): void
}

export type CallScope = {
  readonly phases: PhaseReport[]
  inference: InferenceFacts
  readonly traceparent: string | null
}

const scopes = new AsyncLocalStorage<CallScope>()

/** Runs a call in its own scope, which collects phases (`timed`) and inference facts. */
export function openScope<Result>(
  traceparent: string | null,
  run: (scope: CallScope) => Result,
): { readonly scope: CallScope; readonly result: Result } {
  const scope: CallScope = { phases: [], inference: {}, traceparent }
  return { scope, result: scopes.run(scope, () => run(scope)) }
}

/** Adds facts about the current call, if it is observed. `read` must not throw. */
export function recordInference(read: () => InferenceFacts): void {
  const scope = scopes.getStore()
  if (scope === undefined) return
  scope.inference = { ...scope.inference, ...read() }
}

/** Returns the W3C trace context of the current call. Null when the call is not traced. */
export function currentTraceparent(): string | null {
  return scopes.getStore()?.traceparent ?? null
}

/** Measures a phase that has just begun. */
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

/** Returns a function that does the same as `run` and measures each run as a phase. */
export function timed<Parameters extends readonly unknown[], Result>(
  phase: { readonly phase: Phase; readonly now: () => number },
  run: (...parameters: Parameters) => Promise<Result>,
): (...parameters: Parameters) => Promise<Result> {
  return async (...parameters) => inPhase(phase, run(...parameters))
}
