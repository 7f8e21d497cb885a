import { asError } from '../../api/errors.ts'
import { CommitRaceLost } from '../../chain/relayers-store.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import { EnclaveError } from '../../enclaves/enclave-errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { pause } from '../../runtime/loop.ts'
import { CommitError } from '../commit-error.ts'
import type { AnsweredRecord, RecordsStore } from '../records/records-store.ts'
import { type CommitFigures, countCommit, NO_FIGURES } from './commit-figures.ts'
import {
  commitReply,
  LogDiverged,
  openCommitSession,
  type SessionOptions,
} from './commit-session.ts'
import type { CommitTurn, CommitTurns, PublishedCommit } from './commit-turns.ts'
import type { AwaitedLeaf } from './commit-waiters.ts'
import { LogCorrupt } from './commits-store.ts'
import {
  type FollowEvent,
  type FollowState,
  isRace,
  NEW_FOLLOWER,
  nextFollowState,
  nextStep,
  type Step,
} from './follow-state.ts'
import type { CommittedLog, IntervalAnchors } from './interval-anchors.ts'
import { WaitingCallers } from './waiting-callers.ts'

/** At a stop, completions must be committed within this time. */
const STOP_TIMEOUT_MS = 10_000
const FAULT_LOG_INTERVAL_MS = 30_000

export type CommitterStatus = CommitFigures & {
  readonly phase: FollowState['phase']
  /** The last failure. Null after a successful commit or poll. */
  readonly fault: { readonly name: string; readonly message: string } | null
  /** How long commits have failed. 0 when commits work. */
  readonly failingForMs: number
  /** The notary of the open log, or null. `size` is the size of this log in the database. */
  readonly notary: string | null
  readonly size: number
  readonly waiting: number
}

export type Committer = {
  start(): void
  /**
   * Resolves when the leaf is committed. Rejects with CommitError, or with the signal's reason. An
   * abort does not stop the leaf's commit. `given` is the completion that came with the answer.
   */
  waitFor(
    notary: string,
    index: number,
    signal: AbortSignal,
    given?: AwaitedLeaf['given'],
  ): Promise<AnsweredRecord>
  /**
   * True if another gateway commits this log. The enclave should then send completions with its
   * answers.
   */
  isStandby(notary: string): boolean
  /** Call this when leaves of a log are anchored, so that their records can be read. */
  publish(log: CommittedLog): void
  /**
   * First commits the completions that the enclave still has, within STOP_TIMEOUT_MS, then rejects
   * the remaining callers. Resolves when all work has ended.
   */
  stop(): Promise<void>
  status(): CommitterStatus
}

export type CommitterOptions = SessionOptions & {
  readonly enclave: Pick<EnclaveClient, 'pull'>
  readonly records: Pick<RecordsStore, 'findByIndex' | 'findByIndexes' | 'findHeadless'>
  readonly turns: CommitTurns
  readonly anchors: Pick<IntervalAnchors, 'intervalMs' | 'schedule' | 'flush' | 'fault'>
  /** Called after each commit, to broadcast its anchor. */
  readonly onCommit?: () => void
  /** Called when another gateway committed first. */
  readonly onRace?: () => void
  readonly log: Logger
}

/**
 * Pulls sealed completions from the enclave, checks them, and stores them with their signed anchor,
 * one commit at a time. A pull starts at the size of the log in the database, so it acknowledges
 * exactly what is durable. After a failure, the state of the log is read again, to see whether the
 * last commit is stored. If several gateways share the database, one commits and publishes its
 * commits. The other gateways read the records for their callers. If the log does not grow while a
 * caller waits for TURN_PATIENCE_MS, the caller's gateway also makes commits. follow-state.ts
 * decides the next step.
 */
export function createCommitter(options: CommitterOptions): Committer {
  return new LogCommitter(options)
}

class LogCommitter implements Committer {
  readonly #options: CommitterOptions
  readonly #callers: WaitingCallers
  readonly #faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  #state = NEW_FOLLOWER
  #figures = NO_FIGURES
  #turn: CommitTurn | null = null
  /** Interrupts a poll or pause, but never a commit. */
  #interruption = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(options: CommitterOptions) {
    this.#options = options
    this.#callers = new WaitingCallers(options)
  }

  start(): void {
    if (this.#state.phase !== 'stopped' || this.#state.stop !== 'no') return
    this.#apply({ kind: 'started' })
    this.#running = this.#run()
  }

  waitFor(
    notary: string,
    index: number,
    signal: AbortSignal,
    given: AwaitedLeaf['given'] = null,
  ): Promise<AnsweredRecord> {
    const { waiter, record } = this.#callers.waiters.add(notary, { index, given }, signal)
    const { phase, session, role, readable } = this.#state
    if (phase === 'stopped') waiter.reject(new CommitError('stopped', STOPPED))
    else if (phase === 'refusing') waiter.reject(new CommitError('log_diverged', DIVERGED))
    else if (session !== null && notary !== session.notary.address) this.#reopen()
    else if (notary === readable.notary && index < readable.size)
      void this.#answer({ notary, size: readable.size })
    else if (role === 'commit' && index < (session?.log.edge.size ?? 0))
      this.#callers.answerStored(waiter).catch(() => this.#reopen())
    return record
  }

  isStandby(notary: string): boolean {
    const { role, session } = this.#state
    // If each commit has its own anchor, commits are published with their head. A standby gateway
    // can then make records from completions.
    const isPublished = this.#options.anchors.intervalMs === 0
    return role === 'standby' && isPublished && notary === session?.notary.address
  }

  publish(log: CommittedLog): void {
    if (log.notary === this.#turn?.notary)
      this.#published({ size: log.size, isByHolder: true, head: null })
    // The log is from an earlier enclave.
    else void this.#answer(log)
  }

  async stop(): Promise<void> {
    this.#apply({ kind: 'stopping' })
    this.#interrupt()
    const ended = new AbortController()
    await Promise.race([this.#running, pause(STOP_TIMEOUT_MS, ended.signal)])
    ended.abort()
    this.#apply({ kind: 'stopped' })
    this.#interrupt()
    this.#callers.rejectAll(new CommitError('stopped', STOPPED))
  }

  status(): CommitterStatus {
    const { phase, session, readable } = this.#state
    const fault = this.#state.fault ?? this.#options.anchors.fault()
    return {
      ...this.#figures,
      phase: phase === 'following' && fault !== null ? 'failing' : phase,
      fault: fault && { name: fault.error.name, message: fault.error.message },
      failingForMs: fault === null ? 0 : performance.now() - fault.sinceMs,
      notary: session?.notary.address ?? null,
      size: Math.max(session?.log.edge.size ?? 0, readable.size),
      waiting: this.#callers.waiters.count,
    }
  }

  /** Runs until the stop. A failed step is tried again. */
  async #run(): Promise<void> {
    for (let step = this.#next(); step.kind !== 'end'; step = this.#next())
      await this.#take(step).catch((error: unknown) => this.#fail(asError(error)))
    await this.#endInterval()
    await this.#leaveTurn()
  }

  #next(): Step {
    return nextStep(this.#state, {
      nowMs: performance.now(),
      mayCommit: this.#mayCommit(),
      waiting: this.#callers.waiters.count,
      oldestMs: this.#callers.waiters.oldestMs(),
      intervalMs: this.#options.anchors.intervalMs,
    })
  }

  async #take(step: Exclude<Step, { kind: 'end' }>): Promise<void> {
    switch (step.kind) {
      case 'open':
        return this.#open()
      case 'commit':
        return this.#commit(step)
      case 'catch_up':
        return this.#catchUp(step.notary)
      case 'look': {
        const { notary } = await this.#options.enclave.identity()
        const isIdle = this.#callers.waiters.count === 0
        return this.#apply({ kind: 'looked', notary, isIdle, atMs: performance.now() })
      }
      case 'wait':
        await pause(step.ms, this.#interruption.signal)
        return this.#apply({ kind: 'waited' })
    }
  }

  async #open(): Promise<void> {
    const present = new Set(this.#callers.waiters.all())
    const session = await openCommitSession(this.#options)
    const { address } = session.notary
    if (this.#turn?.notary !== address) {
      await this.#leaveTurn()
      this.#turn = this.#options.turns.join(address, {
        onPublished: (commit) => this.#published(commit),
        onChange: () => this.#interrupt(),
      })
    }
    // Another gateway may have committed after this read and before this gateway got the turn, so
    // the state is read again.
    if (await this.#turn.take()) return
    const mayCommit = this.#mayCommit()
    this.#apply({ kind: 'opened', session, mayCommit, atMs: performance.now() })
    const { size } = session.log.edge
    if (this.#state.role === 'standby') this.#published({ size, isByHolder: false, head: null })
    for (const waiter of this.#callers.waiters.all()) {
      const isOfThisLog = waiter.notary === address
      if (isOfThisLog && waiter.index >= size) continue
      // A new waiter may wait for a leaf of another enclave, so the enclave's identity is read
      // again.
      if (isOfThisLog || present.has(waiter)) await this.#callers.answerStored(waiter)
      else this.#reopen()
    }
  }

  async #commit({ session, waitMs, max }: Extract<Step, { kind: 'commit' }>): Promise<void> {
    const { enclave, anchors, onCommit } = this.#options
    const { notary, known, log, proofs } = session
    const from = log.edge.size
    const request = {
      from,
      wait_ms: waitMs,
      max,
      known_document: known?.digest ?? null,
      ...(proofs.length > 0 ? { proofs } : {}),
    }
    const { signal } = this.#interruption
    const reply = await enclave.pull(request, signal).catch((error: unknown) => {
      if (signal.aborted) return null
      throw error
    })
    if (reply === null) return
    if (reply.notary !== notary.address) return this.#apply({ kind: 'replaced' })
    if (reply.completions.length === 0) {
      const after = proofs.length > 0 ? { ...session, proofs: [] } : session
      return this.#apply({ kind: 'pulled', before: session, after, count: 0 })
    }
    const startedAtMs = performance.now()
    const committed = await commitReply(session, reply, this.#options)
    const { count, recordOf } = committed
    this.#figures = countCommit(this.#figures, { count, startedAtMs })
    this.#apply({ kind: 'pulled', before: session, after: committed.session, count })
    if (recordOf === null) anchors.schedule({ notary: notary.address, size: from + count })
    else this.#callers.resolve(notary.address, { from, count }, recordOf)
    onCommit?.()
  }

  /** Answers callers from the database. If no records are found, this gateway makes commits. */
  async #catchUp(notary: string): Promise<void> {
    if ((await this.#callers.settle({ notary, size: Number.POSITIVE_INFINITY })) > 0) return
    this.#options.log.debug({ notary }, 'another gateway is late, committing as well')
    this.#apply({ kind: 'late', atMs: performance.now() })
  }

  /** Answers callers from the database. If the read fails, the records are read again. */
  async #answer(log: CommittedLog): Promise<void> {
    if (await this.#callers.answer(log)) return
    const { role, readable } = this.#state
    // On standby, the callers soon count as late, and catch_up reads their records. Callers of
    // a gateway that commits, or of an earlier enclave, are answered when a log is opened.
    if (role === 'commit' || log.notary !== readable.notary) this.#reopen()
  }

  /** Any gateway may have stored the records, this one included. */
  #published({ size, isByHolder, head }: PublishedCommit): void {
    const { session, role, readable, racingUntilMs } = this.#state
    const { notary } = readable
    if (notary === null || size <= readable.size) return
    if (head !== null && session !== null) this.#callers.keepHead(session.notary, size, head)
    const mayCommit = this.#mayCommit()
    const atMs = performance.now()
    this.#apply({ kind: 'published', size, isByHolder, mayCommit, atMs })
    // This gateway may no longer commit without the turn, so a running poll ends.
    if (this.#state.racingUntilMs < racingUntilMs) this.#interrupt()
    // A gateway that commits answers its callers from the commit, unless the anchor comes later.
    if (role === 'standby' || this.#options.anchors.intervalMs > 0)
      void this.#answer({ notary, size })
  }

  async #fail(error: Error): Promise<void> {
    const { nonces, onRace, log } = this.#options
    if (isLostRace(error) && isRace(this.#state)) {
      this.#figures = { ...this.#figures, races: this.#figures.races + 1 }
      this.#apply({ kind: 'lost_race' })
      log.debug({ err: error }, 'another gateway committed first')
      return onRace?.()
    }
    // Another gateway may be able to commit, so this gateway leaves the turn.
    await this.#leaveTurn()
    // The failure may mean that this process now uses an older state of the database, or a replica
    // that is behind.
    if (!(error instanceof EnclaveError)) nonces.doubt()
    const isRefusal = error instanceof LogDiverged || error instanceof LogCorrupt
    this.#figures = { ...this.#figures, failures: this.#figures.failures + 1 }
    this.#apply({ kind: 'failed', error, isRefusal, atMs: performance.now() })
    if (isRefusal) this.#callers.rejectAll(new CommitError('log_diverged', DIVERGED))
    if (this.#faultLog.isDue(`${error.name}: ${error.message}`))
      log.error({ err: error, phase: this.#state.phase }, 'commit failed, trying again')
  }

  /** Callers wait for the anchor of the interval, so a stop makes this anchor at once. */
  async #endInterval(): Promise<void> {
    const { anchors } = this.#options
    const { notary } = this.#state.readable
    if (notary === null || anchors.intervalMs === 0) return
    await anchors.flush(notary)
    await this.#answer({ notary, size: this.#state.readable.size })
  }

  /** Returns true also while it is unknown which gateway has the turn. */
  #mayCommit(): boolean {
    return this.#turn?.mayCommit() ?? true
  }

  async #leaveTurn(): Promise<void> {
    const turn = this.#turn
    this.#turn = null
    await turn?.leave()
  }

  #apply(event: FollowEvent): void {
    const { fault, failuresInRow } = this.#state
    this.#state = nextFollowState(this.#state, event)
    if (fault === null || this.#state.fault !== null) return
    this.#options.log.info({ failures: failuresInRow }, 'commits go on')
    this.#faultLog.clear()
  }

  #reopen(): void {
    this.#apply({ kind: 'replaced' })
    this.#interrupt()
  }

  #interrupt(): void {
    this.#interruption.abort(INTERRUPTED)
    this.#interruption = new AbortController()
  }
}

/**
 * True if another gateway committed first: its commit is stored, or acknowledged to the enclave.
 */
function isLostRace(error: unknown): boolean {
  if (error instanceof EnclaveError) return error.fault?.code === 'log_conflict'
  return error instanceof CommitRaceLost
}

/** Created once, because an abort without a reason makes an exception with a stack each time. */
const INTERRUPTED = new Error('a poll or pause was interrupted')
const STOPPED = 'the committer is stopped'
const DIVERGED = 'the database and the log of the enclave contradict each other'
