import { backOffMs } from '../../runtime/back-off.ts'
import type { CommitSession } from './commit-session.ts'

/*
 * Decides what a gateway does next with the log of an enclave, as a pure function of past events.
 * committer.ts carries out the decisions. A gateway opens the log, and then commits it or is on
 * standby while another gateway commits. To change the role, it opens the log again.
 */

/**
 * Maximum time that a poll waits for new completions. An idle gateway always has one poll running.
 */
export const PULL_WAIT_MS = 20_000
/**
 * Maximum completions in one commit. A larger commit would block an embedded database for too long.
 */
export const BATCH_COMPLETIONS_MAX = 128
/** Pause after a failure. It doubles with each further failure. */
const BACKOFF = { minMs: 50, maxMs: 1_000 }
/** Races in a row that this gateway may lose before it pauses. */
const RACES_IN_ROW_MAX = 3
/** Races in a row that this gateway may lose without growth of the log. More are a fault. */
const RACES_WITHOUT_GROWTH_MAX = 20
/**
 * How long a caller waits for the gateway with the turn before the caller's gateway commits too. A
 * commit takes about 10 ms, so a gateway that hangs is soon detected.
 */
export const TURN_PATIENCE_MS = 500
/** How long the caller's gateway commits after TURN_PATIENCE_MS. */
const RACING_MS = 10_000
/** How often a gateway on standby checks its waiters. */
const STANDBY_MS = 100
/**
 * How often a gateway on standby asks the enclave for its identity, to detect that another enclave
 * answers.
 */
const LOOK_INTERVAL_MS = 1_000

/** State of the log that is followed. */
export type FollowState = {
  /** `refusing`: the log diverged, and an operator must repair it. */
  readonly phase: 'stopped' | 'opening' | 'following' | 'failing' | 'refusing'
  /** `done`: no further step begins. */
  readonly stop: 'no' | 'asked' | 'done'
  /** The session for the next commit. Null if the log must be opened first. */
  readonly session: CommitSession | null
  /** The role that the session was opened for. */
  readonly role: 'commit' | 'standby'
  /**
   * Number of leaves whose records can be read, as far as this gateway knows, and when this number
   * last changed.
   */
  readonly readable: {
    readonly notary: string | null
    readonly size: number
    readonly atMs: number
  }
  /** Until this time, this gateway commits although another gateway has the turn. */
  readonly racingUntilMs: number
  /** When the enclave last reported its identity. */
  readonly lookedAtMs: number
  /** The last failure, and when the current series of failures began. Null after a success. */
  readonly fault: { readonly error: Error; readonly sinceMs: number } | null
  readonly failuresInRow: number
  readonly racesInRow: number
  /**
   * Size of the log when the last race was lost, and how many earlier races were lost at this size.
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

/** Events of a log. Times are values of performance.now(). */
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
  /** Records of the log can now be read. `isByHolder`: the gateway with the turn stored them. */
  | {
      readonly kind: 'published'
      readonly size: number
      readonly isByHolder: boolean
      readonly mayCommit: boolean
      readonly atMs: number
    }
  /** Callers at this gateway have waited too long. */
  | { readonly kind: 'late'; readonly atMs: number }
  /** The enclave reported its identity. `isIdle`: no caller waits. */
  | {
      readonly kind: 'looked'
      readonly notary: string
      readonly isIdle: boolean
      readonly atMs: number
    }
  /** Another enclave has replaced the followed enclave, or may have. */
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
  // An operation that hangs may end after the stop. Its result then changes nothing.
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
    // The session may have been replaced while the pull ran.
    session: state.session === before ? after : state.session,
    batchMax: isEmpty ? batchMax : Math.min(BATCH_COMPLETIONS_MAX, batchMax * 2),
    // During a stop, a pull does not wait, so an empty pull means that all completions are
    // committed.
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
  // The gateway with the turn commits again, so this gateway stops racing.
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

/** False if this gateway has lost too many races without growth of the log, which is a fault. */
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
    // The batch may have been too large for the enclave's client or for the database.
    batchMax: Math.max(1, Math.floor(state.batchMax / 2)),
    pauseMs: backOffMs(failuresInRow, BACKOFF, { jitter: 'none' }),
  }
}

function succeeded(state: FollowState): FollowState {
  return { ...state, phase: 'following', fault: null, failuresInRow: 0, racesInRow: 0 }
}

/** The next step of a gateway that follows the log. */
export type Step =
  | { readonly kind: 'open' }
  /** Pulls up to `max` completions and stores them. Waits up to `waitMs` for completions. */
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

/** The facts that decide the next step, in addition to the state. */
export type FollowFacts = {
  readonly nowMs: number
  /** True if this gateway has the turn, or if it is unknown which gateway has it. */
  readonly mayCommit: boolean
  /**
   * Number of callers that wait at this gateway. The next member is the time when the first of them
   * began to wait.
   */
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

/** True if a caller has waited too long while no commit was stored. */
function isLate({ readable }: FollowState, { nowMs, oldestMs, intervalMs }: FollowFacts): boolean {
  return nowMs - Math.max(oldestMs, readable.atMs) > TURN_PATIENCE_MS + intervalMs
}
