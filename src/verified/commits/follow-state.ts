import { backOffMs } from '../../runtime/back-off.ts'
import type { CommitSession } from './commit-session.ts'

/*
 * What a gateway does next with the log of an enclave, as a pure function of what happened;
 * committer.ts does it. A gateway opens the log, and then commits it, or is on standby while
 * another gateway commits it. It opens the log again whenever it changes from one to the other.
 */

/** Longest poll for new completions, milliseconds; an idle gateway always has one under way. */
export const PULL_WAIT_MS = 20_000
/**
 * Completions in one commit. More would block an embedded database for longer than callers should
 * wait.
 */
export const BATCH_COMPLETIONS_MAX = 128
/** Pause after a failure: doubled from the first to the second. */
const BACKOFF = { minMs: 50, maxMs: 1_000 }
/** Races lost in a row to another gateway before there is a pause. */
const RACES_IN_ROW_MAX = 3
/** Races lost in a row while the log did not grow: more of them are a fault. */
const RACES_WITHOUT_GROWTH_MAX = 20
/**
 * How long a caller here waits for the gateway whose turn it is, before this one commits as well. A
 * commit takes some 10 ms, so a gateway that hangs is noticed soon.
 */
export const TURN_PATIENCE_MS = 500
/** For how long this one then commits as well. */
const RACING_MS = 10_000
/** How often a gateway on standby looks at its waiters. */
const STANDBY_MS = 100
/** How often it then asks the enclave who it is: nothing is pulled that would show it. */
const LOOK_INTERVAL_MS = 1_000

/** What is known of the log that is followed. */
export type FollowState = {
  /** `refusing`: the log diverged, an operator is needed. */
  readonly phase: 'stopped' | 'opening' | 'following' | 'failing' | 'refusing'
  /** `done`: nothing more is begun. */
  readonly stop: 'no' | 'asked' | 'done'
  /** What the next commit builds on; null: the log is to be opened. */
  readonly session: CommitSession | null
  /** What the session was opened for. */
  readonly role: 'commit' | 'standby'
  /** Leaves of a log whose records can be read, as far as is known, and since when. */
  readonly readable: {
    readonly notary: string | null
    readonly size: number
    readonly atMs: number
  }
  /** Until when this gateway commits although it is another one's turn. */
  readonly racingUntilMs: number
  /** When the enclave last said who it is. */
  readonly lookedAtMs: number
  /** The last failure, and when the first in a row came; null once a commit or poll succeeds. */
  readonly fault: { readonly error: Error; readonly sinceMs: number } | null
  readonly failuresInRow: number
  readonly racesInRow: number
  /** Size of the log at the last lost race, and how many before it found the same size. */
  readonly racesAt: { readonly size: number; readonly count: number }
  readonly batchMax: number
  /** Pause before the next step. */
  readonly pauseMs: number
}

/** Nothing is followed yet. */
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

/** What happens to a log. Times are of performance.now(). */
export type FollowEvent =
  | { readonly kind: 'started' }
  | {
      readonly kind: 'opened'
      readonly session: CommitSession
      readonly mayCommit: boolean
      readonly atMs: number
    }
  /** The enclave answered a pull, and what came with it is stored. */
  | {
      readonly kind: 'pulled'
      readonly before: CommitSession
      readonly after: CommitSession
      /** Completions that came with it. */
      readonly count: number
    }
  /** Leaves of the log can be read now. `isByHolder`: the gateway whose turn it is stored them. */
  | {
      readonly kind: 'published'
      readonly size: number
      readonly isByHolder: boolean
      readonly mayCommit: boolean
      readonly atMs: number
    }
  /** Callers here have waited for too long. */
  | { readonly kind: 'late'; readonly atMs: number }
  /** The enclave said who it is. `isIdle`: no caller waits. */
  | {
      readonly kind: 'looked'
      readonly notary: string
      readonly isIdle: boolean
      readonly atMs: number
    }
  /** Another enclave answers, or may. */
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
  // A stop may give up on something that hangs: what that does later changes nothing.
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
    // It may have been replaced meanwhile.
    session: state.session === before ? after : state.session,
    batchMax: isEmpty ? batchMax : Math.min(BATCH_COMPLETIONS_MAX, batchMax * 2),
    // The pulls of a stop do not wait, so an empty one says that all is committed.
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
  // The gateway whose turn it is commits again.
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

/** False when so many races were lost while the log stayed as it was that it is a fault. */
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
    // It may have been too much at once: for a limit of the enclave's client, or for the database's
    // memory.
    batchMax: Math.max(1, Math.floor(state.batchMax / 2)),
    pauseMs: backOffMs(failuresInRow, BACKOFF, { jitter: 'none' }),
  }
}

function succeeded(state: FollowState): FollowState {
  return { ...state, phase: 'following', fault: null, failuresInRow: 0, racesInRow: 0 }
}

/** What a gateway does next with the log. */
export type Step =
  | { readonly kind: 'open' }
  /** Pulls up to `max` completions, for up to `waitMs`, and stores them. */
  | {
      readonly kind: 'commit'
      readonly session: CommitSession
      readonly waitMs: number
      readonly max: number
    }
  /** Reads what callers wait for: its notice may be lost. */
  | { readonly kind: 'catch_up'; readonly notary: string }
  /** Asks the enclave who it is. */
  | { readonly kind: 'look' }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'end' }

/** What the next step depends on beside the state. */
export type FollowFacts = {
  readonly nowMs: number
  /** Whether it is this gateway's turn, as far as it can know. */
  readonly mayCommit: boolean
  /** Callers that wait here, and since when the first does. */
  readonly waiting: number
  readonly oldestMs: number
  /** How long commits wait for their anchor. */
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

/** Whether a caller has waited for long without anything being stored. */
function isLate({ readable }: FollowState, { nowMs, oldestMs, intervalMs }: FollowFacts): boolean {
  return nowMs - Math.max(oldestMs, readable.atMs) > TURN_PATIENCE_MS + intervalMs
}
