import { backOffMs } from '../../runtime/back-off.ts'
import type { CommitSession } from './commit-session.ts'

/*
 * Decides what a gateway does next with the log of an enclave, as a pure function of past events.
 * committer.ts carries it out. A gateway opens the log. It then commits the log, or is on standby
 * while another gateway commits it. When it changes between these two roles, it opens the log
 * again.
 */

/**
 * Maximum time of a poll for new completions, milliseconds. An idle gateway always has one poll
 * running.
 */
export const PULL_WAIT_MS = 20_000
/**
 * Maximum number of completions in a commit. More would block an embedded database for longer than
 * callers should wait.
 */
export const BATCH_COMPLETIONS_MAX = 128
/** Pause after a failure. It doubles each time, from the minimum to the maximum. */
const BACKOFF = { minMs: 50, maxMs: 1_000 }
/** Number of races that may be lost in a row before there is a pause. */
const RACES_IN_ROW_MAX = 3
/** Number of races that may be lost in a row without growth of the log. Losing more is a fault. */
const RACES_WITHOUT_GROWTH_MAX = 20
/**
 * How long a caller waits for the gateway whose turn it is before this gateway commits too. A
 * commit takes about 10 ms, so this soon detects a gateway that hangs.
 */
export const TURN_PATIENCE_MS = 500
/** How long this gateway then commits too. */
const RACING_MS = 10_000
/** How often a gateway on standby checks its waiters. */
const STANDBY_MS = 100
/**
 * How often a gateway on standby asks the enclave for its identity. It does not pull, so it would
 * not see a change otherwise.
 */
const LOOK_INTERVAL_MS = 1_000

/** State of the log that is followed. */
export type FollowState = {
  /** `refusing`: the log diverged, and an operator must repair it. */
  readonly phase: 'stopped' | 'opening' | 'following' | 'failing' | 'refusing'
  /** `done`: no further step begins. */
  readonly stop: 'no' | 'asked' | 'done'
  /** What the next commit builds on; null: the log must be opened first. */
  readonly session: CommitSession | null
  /** The role that the session was opened for. */
  readonly role: 'commit' | 'standby'
  /** Number of leaves whose records are known to be readable, and when this number last changed. */
  readonly readable: {
    readonly notary: string | null
    readonly size: number
    readonly atMs: number
  }
  /** Until this time the gateway commits although it is another gateway's turn. */
  readonly racingUntilMs: number
  /** When the enclave last reported its identity. */
  readonly lookedAtMs: number
  /**
   * The last failure, and when the current row of failures began. Null after a successful commit or
   * poll.
   */
  readonly fault: { readonly error: Error; readonly sinceMs: number } | null
  readonly failuresInRow: number
  readonly racesInRow: number
  /**
   * Size of the log at the last lost race, and the number of races lost before it at the same size.
   */
  readonly racesAt: { readonly size: number; readonly count: number }
  readonly batchMax: number
  /** Pause before the next step. */
  readonly pauseMs: number
}

/** The state before any log is followed. */
export const NEW_FOLLOWER: FollowState = {
  phase: 'stopped',
  stop: 'no',
  session: null,
  role: 'commit',
  readable: { notary: null, size: 0, atMs: 0 },
  racingUntilMs: 0,
  lookedAtMs: 0,
  fault: null,
  failuresInRow: 0,
  racesInRow: 0,
  racesAt: { size: -1, count: 0 },
  batchMax: BATCH_COMPLETIONS_MAX,
  pauseMs: 0,
}

/** Events of a log. Times are of performance.now(). */
export type FollowEvent =
  | { readonly kind: 'started' }
  | {
      readonly kind: 'opened'
      readonly session: CommitSession
      readonly mayCommit: boolean
      readonly atMs: number
    }
  /** The enclave answered a pull, and the answer is stored. */
  | {
      readonly kind: 'pulled'
      readonly before: CommitSession
      readonly after: CommitSession
      /** Number of completions in the answer. */
      readonly count: number
    }
  /** Records of the log can now be read. `isByHolder`: the gateway whose turn it is stored them. */
  | {
      readonly kind: 'published'
      readonly size: number
      readonly isByHolder: boolean
      readonly mayCommit: boolean
      readonly atMs: number
    }
  /** Callers here have waited for too long. */
  | { readonly kind: 'late'; readonly atMs: number }
  /** The enclave reported its identity. `isIdle`: no caller waits. */
  | {
      readonly kind: 'looked'
      readonly notary: string
      readonly isIdle: boolean
      readonly atMs: number
    }
  /** Another enclave answers now, or may answer now. */
  | { readonly kind: 'replaced' }
  | { readonly kind: 'lost_race' }
  | {
      readonly kind: 'failed'
      readonly error: Error
      readonly isRefusal: boolean
      readonly atMs: number
    }
  | { readonly kind: 'waited' }
  | { readonly kind: 'stopping' }
  | { readonly kind: 'stopped' }

/** The state after an event. */
export function nextFollowState(state: FollowState, event: FollowEvent): FollowState {
  if (event.kind === 'started') return { ...state, phase: 'opening' }
  // A stop may give up on an operation that hangs. Later results of that operation change nothing.
  if (state.phase === 'stopped' && state.stop === 'done') return state
  switch (event.kind) {
    case 'opened':
      return opened(state, event)
    case 'pulled':
      return pulled(state, event)
    case 'published':
      return published(state, event)
    case 'late':
      return { ...state, session: null, racingUntilMs: event.atMs + RACING_MS }
    case 'looked':
      return looked(state, event)
    case 'replaced':
      return { ...state, session: null }
    case 'lost_race':
      return lostRace(state)
    case 'failed':
      return failed(state, event)
    case 'waited':
      return { ...state, pauseMs: 0 }
    case 'stopping':
      return { ...state, stop: state.stop === 'done' ? 'done' : 'asked' }
    case 'stopped':
      return { ...state, stop: 'done', phase: 'stopped' }
  }
}

type Of<Kind extends FollowEvent['kind']> = Extract<FollowEvent, { readonly kind: Kind }>

function opened(state: FollowState, { session, mayCommit, atMs }: Of<'opened'>): FollowState {
  const { address } = session.notary
  const isSame = state.readable.notary === address
  const racingUntilMs = isSame ? state.racingUntilMs : 0
  const role = mayCommit || atMs < racingUntilMs ? 'commit' : 'standby'
  return {
    ...state,
    session,
    role,
    racingUntilMs,
    readable: isSame ? state.readable : { notary: address, size: 0, atMs },
    lookedAtMs: atMs,
    phase: state.fault === null ? 'following' : 'failing',
  }
}

function pulled(state: FollowState, { before, after, count }: Of<'pulled'>): FollowState {
  const isEmpty = count === 0
  const { batchMax } = state
  return succeeded({
    ...state,
    // The session may have been replaced meanwhile.
    session: state.session === before ? after : state.session,
    batchMax: isEmpty ? batchMax : Math.min(BATCH_COMPLETIONS_MAX, batchMax * 2),
    // During a stop, pulls do not wait. So an empty pull means that everything is committed.
    stop: isEmpty && state.stop === 'asked' ? 'done' : state.stop,
  })
}

function published(
  state: FollowState,
  { size, isByHolder, mayCommit, atMs }: Of<'published'>,
): FollowState {
  if (size <= state.readable.size) return state
  const next = { ...state, readable: { ...state.readable, size, atMs } }
  if (state.role === 'standby') return succeeded(next)
  // The gateway whose turn it is commits again, so this gateway stops racing.
  return isByHolder && !mayCommit ? { ...next, racingUntilMs: 0 } : next
}

function looked(state: FollowState, { notary, isIdle, atMs }: Of<'looked'>): FollowState {
  if (notary !== state.session?.notary.address) return { ...state, session: null }
  const next = { ...state, lookedAtMs: atMs }
  return isIdle ? succeeded(next) : next
}

function lostRace(state: FollowState): FollowState {
  const racesInRow = state.racesInRow + 1
  return {
    ...state,
    session: null,
    racesInRow,
    racesAt: racesAfter(state),
    pauseMs: racesInRow > RACES_IN_ROW_MAX ? BACKOFF.minMs : 0,
  }
}

function racesAfter({ session, racesAt }: FollowState): FollowState['racesAt'] {
  const size = session?.log.edge.size ?? -1
  return { size, count: racesAt.size === size ? racesAt.count + 1 : 0 }
}

/** False when so many races were lost without growth of the log that this counts as a fault. */
export function isRace(state: FollowState): boolean {
  return racesAfter(state).count <= RACES_WITHOUT_GROWTH_MAX
}

function failed(state: FollowState, { error, isRefusal, atMs }: Of<'failed'>): FollowState {
  const failuresInRow = state.failuresInRow + 1
  return {
    ...state,
    phase: isRefusal ? 'refusing' : 'failing',
    stop: state.stop === 'no' ? 'no' : 'done',
    session: null,
    racingUntilMs: 0,
    fault: { error, sinceMs: state.fault?.sinceMs ?? atMs },
    failuresInRow,
    // The batch may have been too large for a limit of the enclave's client, or for the database's
    // memory.
    batchMax: Math.max(1, Math.floor(state.batchMax / 2)),
    pauseMs: backOffMs(failuresInRow, BACKOFF, { jitter: 'none' }),
  }
}

function succeeded(state: FollowState): FollowState {
  return { ...state, phase: 'following', fault: null, failuresInRow: 0, racesInRow: 0 }
}

/** The next step of a gateway with the log. */
export type Step =
  | { readonly kind: 'open' }
  /** Pulls up to `max` completions, for up to `waitMs`, and stores them. */
  | {
      readonly kind: 'commit'
      readonly session: CommitSession
      readonly waitMs: number
      readonly max: number
    }
  /** Reads the records that callers wait for, because a notice about them may be lost. */
  | { readonly kind: 'catch_up'; readonly notary: string }
  /** Asks the enclave for its identity. */
  | { readonly kind: 'look' }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'end' }

/** What the next step depends on, in addition to the state. */
export type FollowFacts = {
  readonly nowMs: number
  /** Whether it is this gateway's turn. Also true when that is unknown. */
  readonly mayCommit: boolean
  /** Number of callers that wait here, and when the first of them began to wait. */
  readonly waiting: number
  readonly oldestMs: number
  /** How long commits wait for their anchor, milliseconds. */
  readonly intervalMs: number
}

/** The next step. */
export function nextStep(state: FollowState, facts: FollowFacts): Step {
  const { session, role, stop } = state
  const { nowMs, mayCommit, waiting } = facts
  if (stop === 'done') return { kind: 'end' }
  if (state.pauseMs > 0 && stop === 'no') return { kind: 'wait', ms: state.pauseMs }
  const isToCommit = mayCommit || nowMs < state.racingUntilMs
  if (session === null || isToCommit !== (role === 'commit')) return { kind: 'open' }
  if (isToCommit) {
    const waitMs = stop === 'asked' || state.fault !== null ? 0 : PULL_WAIT_MS
    return { kind: 'commit', session, waitMs, max: state.batchMax }
  }
  if (stop === 'asked' && waiting === 0) return { kind: 'end' }
  if (isLate(state, facts)) return { kind: 'catch_up', notary: session.notary.address }
  if (nowMs - state.lookedAtMs >= LOOK_INTERVAL_MS) return { kind: 'look' }
  return { kind: 'wait', ms: STANDBY_MS }
}

/** Whether a caller has waited too long while nothing was stored. */
function isLate({ readable }: FollowState, { nowMs, oldestMs, intervalMs }: FollowFacts): boolean {
  return nowMs - Math.max(oldestMs, readable.atMs) > TURN_PATIENCE_MS + intervalMs
}
