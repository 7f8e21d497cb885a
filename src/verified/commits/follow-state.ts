import { backOffMs } from '../../runtime/back-off.ts'
import type { CommitSession } from './commit-session.ts'

/**
 * Decides what a gateway does next with an enclave's log, as a pure function of past events.
 * committer.ts carries out the decisions. A gateway opens the log. Then it commits the log, or is
 * on standby while another gateway commits. To change the role, it opens the log again.
 */

/** How long a poll waits for new completions. An idle gateway always has one poll running. */
export const PULL_WAIT_MS = 20_000
/** A larger commit would block an embedded database for too long. */
export const BATCH_COMPLETIONS_MAX = 128
/** The pause after a failure, doubled with each further failure. */
const BACKOFF = { minMs: 50, maxMs: 1_000 }
/** After this many lost races in a row, this gateway pauses. */
const RACES_IN_ROW_MAX = 3
/** After this many lost races without growth of the log, a further lost race is a fault. */
const RACES_WITHOUT_GROWTH_MAX = 20
/**
 * If the log does not grow for this long while a caller waits, the caller's gateway commits even
 * without the turn. A commit takes only about 10 ms.
 */
export const TURN_PATIENCE_MS = 500
/** How long a gateway may commit without the turn after one of its callers waited too long. */
const RACING_MS = 10_000
/** How often a gateway on standby checks its waiters. */
const STANDBY_MS = 100
/**
 * How often a gateway on standby asks for the enclave's identity, because another enclave may have
 * replaced the enclave.
 */
const LOOK_INTERVAL_MS = 1_000

export type FollowState = {
  /** `refusing`: the log diverged, and an operator must repair the database. */
  readonly phase: 'stopped' | 'opening' | 'following' | 'failing' | 'refusing'
  /** `done`: no further step begins. */
  readonly stop: 'no' | 'asked' | 'done'
  /** Null if the log must be opened first. */
  readonly session: CommitSession | null
  /** The session was opened for this role. */
  readonly role: 'commit' | 'standby'
  /**
   * As far as this gateway knows, the records of `size` leaves can be read. `atMs` is when the size
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
  /** The last failure, and when failures began. Null after a success. */
  readonly fault: { readonly error: Error; readonly sinceMs: number } | null
  readonly failuresInRow: number
  readonly racesInRow: number
  /**
   * The size of the log at the last lost race, and the number of earlier lost races at this size.
   */
  readonly racesAt: { readonly size: number; readonly count: number }
  readonly batchMax: number
  /** The pause before the next step. */
  readonly pauseMs: number
}

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

/** Times are values of performance.now(). */
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
  /** Records can now be read. `isByHolder`: they were stored by the gateway that has the turn. */
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
  /** Another enclave has, or may have, replaced the enclave of this log. */
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

export function nextFollowState(state: FollowState, event: FollowEvent): FollowState {
  if (event.kind === 'started') return { ...state, phase: 'opening' }
  // The result of an operation that ends after the stop does not change the state.
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
    // The session may have been replaced during the pull.
    session: state.session === before ? after : state.session,
    batchMax: isEmpty ? batchMax : Math.min(BATCH_COMPLETIONS_MAX, batchMax * 2),
    // During a stop, a pull does not wait, and an empty answer means that all completions are
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
  // The gateway with the turn works again, so this gateway stops commits without the turn.
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

/** False after so many lost races without growth of the log that they count as a fault. */
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

export type Step =
  | { readonly kind: 'open' }
  /** Pulls up to `max` completions and stores them. Waits up to `waitMs` for completions. */
  | {
      readonly kind: 'commit'
      readonly session: CommitSession
      readonly waitMs: number
      readonly max: number
    }
  /** Reads the records that callers wait for, because the notice of their commit may be lost. */
  | { readonly kind: 'catch_up'; readonly notary: string }
  | { readonly kind: 'look' }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'end' }

/** What decides the next step, besides the state. */
export type FollowFacts = {
  readonly nowMs: number
  /** Also true while it is unknown which gateway has the turn. */
  readonly mayCommit: boolean
  /** Number of callers that wait at this gateway. `oldestMs`: when the first began to wait. */
  readonly waiting: number
  readonly oldestMs: number
  /** How long commits wait for their anchor. */
  readonly intervalMs: number
}

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

/** True if a caller has waited too long without a new commit. */
function isLate({ readable }: FollowState, { nowMs, oldestMs, intervalMs }: FollowFacts): boolean {
  return nowMs - Math.max(oldestMs, readable.atMs) > TURN_PATIENCE_MS + intervalMs
}
