import { expect, it } from 'vitest'
import type { CommitSession } from '#src/verified/commits/commit-session.ts'
import {
  BATCH_COMPLETIONS_MAX,
  type FollowEvent,
  type FollowFacts,
  type FollowState,
  isRace,
  NEW_FOLLOWER,
  nextFollowState,
  nextStep,
  PULL_WAIT_MS,
  TURN_PATIENCE_MS,
} from '#src/verified/commits/follow-state.ts'

const NOTARY = '0xaa'

const FACTS: FollowFacts = {
  nowMs: 0,
  mayCommit: true,
  waiting: 0,
  oldestMs: Number.POSITIVE_INFINITY,
  intervalMs: 0,
}

/** Of a session, the state reads the notary's address and the log's size. */
function sessionOf(size: number, address = NOTARY): CommitSession {
  const notary = { address } as CommitSession['notary']
  return { notary, log: { logId: 1, edge: { size, hashes: [] } }, known: null, proofs: [] }
}

function stateAfter(...events: readonly FollowEvent[]): FollowState {
  return events.reduce(nextFollowState, NEW_FOLLOWER)
}

function opened(session: CommitSession, mayCommit = true, atMs = 0): FollowEvent {
  return { kind: 'opened', session, mayCommit, atMs }
}

function pulled(before: CommitSession, after: CommitSession, count: number): FollowEvent {
  return { kind: 'pulled', before, after, count }
}

function failed(error = new Error('no connection'), isRefusal = false): FollowEvent {
  return { kind: 'failed', error, isRefusal, atMs: 5 }
}

const STARTED: FollowEvent = { kind: 'started' }
const STOPPING: FollowEvent = { kind: 'stopping' }
const SESSION = sessionOf(3)
const standingBy = stateAfter(STARTED, opened(SESSION, false))

it('a log is opened before it is committed, and committed by pulls that wait', () => {
  expect(nextStep(stateAfter(STARTED), FACTS)).toEqual({ kind: 'open' })
  expect(nextStep(stateAfter(STARTED, opened(SESSION)), FACTS)).toEqual({
    kind: 'commit',
    session: SESSION,
    waitMs: PULL_WAIT_MS,
    max: BATCH_COMPLETIONS_MAX,
  })
})

it('a commit builds on the one before it, unless the enclave was replaced meanwhile', () => {
  const grown = sessionOf(5)
  const more = pulled(SESSION, grown, 2)
  expect(stateAfter(STARTED, opened(SESSION), more).session).toBe(grown)
  const replaced = stateAfter(STARTED, opened(SESSION), { kind: 'replaced' }, more)
  expect(nextStep(replaced, FACTS)).toEqual({ kind: 'open' })
})

it('a failure halves the batch, pauses twice as long each time, and has the log opened again', () => {
  const once = stateAfter(STARTED, opened(SESSION), failed())
  expect(once).toMatchObject({ phase: 'failing', batchMax: 64, pauseMs: 50, session: null })
  const often = Array.from({ length: 20 }, () => failed()).reduce(nextFollowState, once)
  expect(often).toMatchObject({ batchMax: 1, pauseMs: 1_000 })
  const twice = nextFollowState(once, failed())
  expect(nextStep(twice, FACTS)).toEqual({ kind: 'wait', ms: 100 })
  expect(nextStep(nextFollowState(twice, { kind: 'waited' }), FACTS)).toEqual({ kind: 'open' })
  const reopened = nextFollowState(twice, opened(SESSION))
  expect(reopened.phase).toBe('failing')
  expect(nextFollowState(reopened, pulled(SESSION, SESSION, 0))).toMatchObject({
    phase: 'following',
    fault: null,
    failuresInRow: 0,
  })
})

it('a log that diverged is refused until it can be opened', () => {
  const refusing = stateAfter(STARTED, failed(new Error('diverged'), true))
  expect(refusing.phase).toBe('refusing')
  expect(nextFollowState(refusing, opened(SESSION)).phase).toBe('failing')
})

it('races are lost without a pause at first, and are a fault once the log does not grow', () => {
  let state = stateAfter(STARTED)
  const pauses: number[] = []
  for (let race = 0; race < 21; race++) {
    expect(isRace(state)).toBe(true)
    state = nextFollowState(nextFollowState(state, opened(SESSION)), { kind: 'lost_race' })
    pauses.push(state.pauseMs)
    state = nextFollowState(state, { kind: 'waited' })
  }
  expect(pauses.slice(0, 4)).toEqual([0, 0, 0, 50])
  expect(isRace(nextFollowState(state, opened(SESSION)))).toBe(false)
  expect(isRace(nextFollowState(state, opened(sessionOf(4))))).toBe(true)
})

it('a stop commits what is sealed without waiting, and ends with an empty reply or a failure', () => {
  const stopping = stateAfter(STARTED, opened(SESSION), STOPPING)
  expect(nextStep(stopping, FACTS)).toMatchObject({ kind: 'commit', waitMs: 0 })
  const more = nextFollowState(stopping, pulled(SESSION, sessionOf(4), 1))
  expect(nextStep(more, FACTS)).toMatchObject({ kind: 'commit' })
  const session = more.session ?? SESSION
  const empty = nextFollowState(more, pulled(session, session, 0))
  expect(nextStep(empty, FACTS)).toEqual({ kind: 'end' })
  expect(nextStep(nextFollowState(stopping, failed()), FACTS)).toEqual({ kind: 'end' })
})

const theirs = { ...FACTS, mayCommit: false }

it('a gateway waits while another commits, and asks every second who the enclave is', () => {
  expect(nextStep(standingBy, theirs)).toEqual({ kind: 'wait', ms: 100 })
  expect(nextStep(standingBy, { ...theirs, nowMs: 1_000 })).toEqual({ kind: 'look' })
  const looked = (notary: string) =>
    nextFollowState(standingBy, { kind: 'looked', notary, isIdle: true, atMs: 1_000 })
  expect(nextStep(looked(NOTARY), { ...theirs, nowMs: 1_500 }).kind).toBe('wait')
  expect(nextStep(looked('0xbb'), { ...theirs, nowMs: 1_500 }).kind).toBe('open')
})

it('a gateway opens the log anew when the turn becomes its own, and when it loses it', () => {
  expect(nextStep(standingBy, FACTS)).toEqual({ kind: 'open' })
  expect(nextStep(stateAfter(STARTED, opened(SESSION)), theirs)).toEqual({ kind: 'open' })
})

it('a gateway whose callers wait for too long commits as well, until the other does again', () => {
  const nowMs = TURN_PATIENCE_MS + 1
  const late = { ...theirs, nowMs, waiting: 1, oldestMs: 0 }
  expect(nextStep(standingBy, { ...late, nowMs: TURN_PATIENCE_MS })).toMatchObject({
    kind: 'wait',
  })
  expect(nextStep(standingBy, { ...late, intervalMs: 50 })).toMatchObject({ kind: 'wait' })
  expect(nextStep(standingBy, late)).toEqual({ kind: 'catch_up', notary: NOTARY })
  const racing = [{ kind: 'late', atMs: nowMs }, opened(SESSION, false, nowMs)] as const
  const committing = racing.reduce(nextFollowState, standingBy)
  expect(nextStep(committing, late)).toMatchObject({ kind: 'commit', session: SESSION })
  const published = { kind: 'published', size: 9, mayCommit: false, atMs: nowMs } as const
  const other = nextFollowState(committing, { ...published, isByHolder: false })
  expect(nextStep(other, late).kind).toBe('commit')
  const holder = nextFollowState(committing, { ...published, isByHolder: true })
  expect(nextStep(holder, late).kind).toBe('open')
  expect(nextStep(committing, { ...late, nowMs: nowMs + 10_000 }).kind).toBe('open')
})

it('a gateway that stops goes on standing by while callers wait', () => {
  const stopping = nextFollowState(standingBy, STOPPING)
  expect(nextStep(stopping, { ...theirs, waiting: 1 }).kind).toBe('wait')
  expect(nextStep(stopping, theirs)).toEqual({ kind: 'end' })
})
