import { AsyncLocalStorage } from 'node:async_hooks'

/** What a call spends its time on, beside our own work. */
export const PHASES = [
  /** Looking up the API key. */
  'authenticate',
  /** Until the enclave begins to answer: for a stream the provider's first byte, else its whole answer, sealed. */
  'enclave',
  /** From the end of the answer until its record and anchor are stored. */
  'commit',
  /** Waiting for a node, and for its first token. */
  'node',
] as const

export type Phase = (typeof PHASES)[number]

/** Times are milliseconds of the app's clock. */
export type PhaseReport = {
  readonly phase: Phase
  readonly startedAtMs: number
  readonly durationMs: number
  readonly isFailed: boolean
}

/** A call to the API that is over, however it ended. Nothing in it is the caller's text but `method`. */
export type CallReport = {
  readonly method: string
  /** The router's pattern; null where nothing is. */
  readonly route: string | null
  readonly status: number
  /** Whether the answer was sent to its end. */
  readonly isWhole: boolean
  readonly requestId: string
  readonly startedAtMs: number
  readonly durationMs: number
  /** Until the answer's head went out; null when none did. */
  readonly headMs: number | null
  /** Until a stream's first event, comments not counted; null for what is no stream. */
  readonly firstEventMs: number | null
  readonly phases: readonly PhaseReport[]
}

/** Hears of every call: `begin` when it came in, and what that gives when it is over. Neither may throw. */
export type CallObserver = { begin(): (report: CallReport) => void }

type Scope = { readonly phases: PhaseReport[] }

const scopes = new AsyncLocalStorage<Scope>()

/** Runs a call so that what it awaits through `timed` is noted. Gives the list that it is noted in, and what `run` gives. */
export function openScope<Result>(run: () => Result): {
  readonly phases: readonly PhaseReport[]
  readonly result: Result
} {
  const phases: PhaseReport[] = []
  return { phases, result: scopes.run({ phases }, run) }
}

/** `run`, whose time is noted as a phase of the call it is run for; outside of a call it is just run. */
export function timed<Parameters extends readonly unknown[], Result>(
  { phase, now }: { readonly phase: Phase; readonly now: () => number },
  run: (...parameters: Parameters) => Promise<Result>,
): (...parameters: Parameters) => Promise<Result> {
  return async (...parameters) => {
    const scope = scopes.getStore()
    const startedAtMs = now()
    let isFailed = true
    try {
      const result = await run(...parameters)
      isFailed = false
      return result
    } finally {
      scope?.phases.push({ phase, startedAtMs, durationMs: now() - startedAtMs, isFailed })
    }
  }
}
