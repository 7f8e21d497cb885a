import type { PullReply, ToldCompletion } from '../../../enclave/protocol/messages.ts'
import { asError } from '../../api/errors.ts'
import { CommitRaceLost } from '../../chain/relayers-store.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import { EnclaveError } from '../../enclaves/enclave-errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { backOffMs } from '../../runtime/back-off.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { pause } from '../../runtime/loop.ts'
import { CommitError } from '../commit-error.ts'
import type { AnsweredRecord, RecordsStore } from '../records/records-store.ts'
import {
  type CommitSession,
  commitReply,
  LogDiverged,
  openSession,
  type SessionOptions,
} from './commit-session.ts'
import type { CommitTurns, HeardCommit, Turn } from './commit-turns.ts'
import { CommitWaiters, type Waiter } from './commit-waiters.ts'
import { LogCorrupt } from './commits-store.ts'
import type { ToldHead } from './committed-heads.ts'
import { CommittedRecords } from './committed-records.ts'
import type { CommittedLog, IntervalAnchors } from './interval-anchors.ts'

/**
 * Longest poll for new completions, milliseconds; in an idle gateway one of them is always under
 * way.
 */
export const PULL_WAIT_MS = 20_000
/**
 * Completions in one commit. More would block an embedded database for longer than callers should
 * wait.
 */
export const BATCH_COMPLETIONS_MAX = 128
/** Pause after a failure: doubled from the first to the second. */
const BACKOFF_MIN_MS = 50
const BACKOFF_MAX_MS = 1_000
/** How long a stop may spend on what is still uncommitted. */
const STOP_TIMEOUT_MS = 10_000
/** Races lost to another gateway before there is a pause even so. */
const RACES_IN_ROW_MAX = 3
/** Races lost in a row while the log did not grow: then it is no race, but a fault. */
const RACES_WITHOUT_GROWTH_MAX = 20
/**
 * How long a caller here waits for the gateway whose turn it is, before this one commits as well. A
 * commit takes some 10 ms; a gateway that hangs is then no reason to wait for.
 */
export const TURN_PATIENCE_MS = 500
/** For how long this one then commits as well. */
const RACING_MS = 10_000
/** How often a committer looks at its waiters while it is another gateway's turn. */
const ATTEND_INTERVAL_MS = 100
/** After so many of these looks the enclave is asked who it is. */
const LOOKS_PER_IDENTITY = 10
/** While a fault lasts, it is logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 30_000

/** What the committer has done since the start of this process. */
type CommitFigures = {
  readonly commits: number
  readonly records: number
  /** Commits that another gateway made first. */
  readonly races: number
  readonly failures: number
  /** Records of the last commit, and of the largest one. */
  readonly lastBatch: number
  readonly largestBatch: number
  /**
   * When the last commit was durable, Unix milliseconds, and how long it took from the enclave's
   * reply on.
   */
  readonly lastCommitAtMs: number | null
  readonly lastCommitMs: number | null
}

/** The figures before anything happened. */
export const NO_FIGURES: CommitFigures = {
  commits: 0,
  records: 0,
  races: 0,
  failures: 0,
  lastBatch: 0,
  largestBatch: 0,
  lastCommitAtMs: null,
  lastCommitMs: null,
}

export type CommitterStatus = CommitFigures & {
  /** `refusing`: the log diverged, an operator is needed. */
  readonly phase: 'stopped' | 'opening' | 'following' | 'failing' | 'refusing'
  /** Name and message of the last failure, until a commit or poll succeeds. */
  readonly fault: { readonly name: string; readonly message: string } | null
  /** How long nothing could be committed; 0 while all is well. */
  readonly failingForMs: number
  /** Log that is followed, and its size in the database. */
  readonly notary: string | null
  readonly size: number
  /** Callers that wait for a commit. */
  readonly waiting: number
}

export type Committer = {
  /** Begins to follow the enclave's log. */
  start(): void
  /**
   * Gives the record of a leaf once it is committed, at once when it already is. Rejects with the
   * signal's reason (the leaf is then committed all the same), or CommitError. `told`: what the
   * enclave told of it.
   */
  waitFor(
    notary: string,
    index: number,
    signal: AbortSignal,
    told?: ToldCompletion | null,
  ): Promise<AnsweredRecord>
  /** Whether another gateway commits this log, so that completions are best told by the enclave. */
  attends(notary: string): boolean
  /** Says that leaves of a log are anchored, and their records can be read. */
  noteAnchored(log: CommittedLog): void
  /**
   * Commits what the enclave still holds, within STOP_TIMEOUT_MS, rejects who is left waiting, and
   * resolves when all is over.
   */
  stop(): Promise<void>
  status(): CommitterStatus
}

export type CommitterOptions = SessionOptions & {
  readonly enclave: Pick<EnclaveClient, 'pull'>
  readonly records: Pick<RecordsStore, 'findByIndex' | 'findByIndexes' | 'findHeadless'>
  /** Which of the gateways on the database commits. */
  readonly turns: CommitTurns
  readonly anchors: Pick<IntervalAnchors, 'intervalMs' | 'note' | 'flush' | 'fault'>
  /** Told after each commit: there is a new anchor to broadcast. */
  readonly onCommit?: () => void
  /** Told of each commit that another gateway made first. */
  readonly onRace?: () => void
  readonly log: Logger
}

/**
 * Gives the committer: it pulls what the enclave sealed, checks it, and stores it together with its
 * signed anchor, one commit at a time; whatever is sealed meanwhile is the next. A pull starts at
 * the size of the log in the database, and so acknowledges exactly what is durable. After any
 * failure it reads anew where the log stands: a commit whose outcome was unknown has then either
 * happened, or is done again with the same nonce.
 *
 * Where several gateways share the database, one commits and tells the others, which read what
 * their callers wait for (`attend`). That saves work, and nothing depends on it: when a caller has
 * waited for TURN_PATIENCE_MS while the log did not grow, his own gateway commits as well, and
 * whoever is second in that race reads anew.
 */
export function createCommitter(options: CommitterOptions): Committer {
  return new LogFollower(options)
}

class LogFollower implements Committer {
  private readonly options: CommitterOptions
  private readonly waiters = new CommitWaiters()
  private readonly committed: CommittedRecords
  private readonly readRecords: CommittedRecords['read']
  private figures = NO_FIGURES
  private phase: CommitterStatus['phase'] = 'stopped'
  private fault: { readonly error: Error; readonly sinceMs: number } | null = null
  private readonly faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  private failuresInRow = 0
  private racesInRow = 0
  /** Size of the log at the last lost race, and how often in a row it was that. */
  private racesAt = { size: -1, count: 0 }
  private turn: Turn | null = null
  /** Leaves whose records can be read, as far as is known, and since when. */
  private readable = { size: 0, atMs: 0 }
  private racingUntilMs = 0
  private isAttending = false
  private isSettling = false
  private hasToSettle = false
  private batchMax = BATCH_COMPLETIONS_MAX
  private session: CommitSession | null = null
  private running: Promise<void> = Promise.resolve()
  /** Ends the poll or pause that is under way, never a commit. */
  private interruption = new AbortController()
  private isStopping = false
  private isReopening = false
  /** A stop is over, also when it gave up on something that still hangs. */
  private isOver = false

  constructor(options: CommitterOptions) {
    this.options = options
    this.committed = new CommittedRecords(options.records)
    this.readRecords = (notary, leaves) => this.committed.read(notary, leaves)
  }

  start(): void {
    if (this.phase !== 'stopped' || this.isStopping) return
    this.phase = 'opening'
    this.running = this.run()
  }

  waitFor(
    notary: string,
    index: number,
    signal: AbortSignal,
    told: ToldCompletion | null = null,
  ): Promise<AnsweredRecord> {
    const { waiter, record } = this.waiters.add(notary, { index, told }, signal)
    const { session } = this
    if (this.phase === 'stopped') waiter.reject(new CommitError('stopped', STOPPED))
    else if (this.phase === 'refusing') waiter.reject(new CommitError('log_diverged', DIVERGED))
    else if (session !== null && notary !== session.notary.address) this.reopen()
    else if (index < this.readable.size && notary === this.turn?.notary) void this.settleReadable()
    else if (this.isAttending) return record
    else if (session !== null && index < session.log.edge.size)
      this.settleStored(waiter).catch(() => this.reopen())
    return record
  }

  attends(notary: string): boolean {
    // With intervals, nobody tells a head.
    const isTold = this.options.anchors.intervalMs === 0
    return this.isAttending && isTold && notary === this.turn?.notary
  }

  noteAnchored({ notary, size }: CommittedLog): void {
    if (notary === this.turn?.notary) this.hear({ size, isByHolder: true, head: null })
    // Of an enclave that was here before.
    else
      this.waiters
        .settle({ notary, size }, this.readRecords)
        .catch((error: unknown) => this.options.log.debug({ err: asError(error) }, UNREAD))
  }

  async stop(): Promise<void> {
    this.isStopping = true
    this.interrupt()
    const ended = new AbortController()
    await Promise.race([this.running, pause(STOP_TIMEOUT_MS, ended.signal)])
    ended.abort()
    this.interrupt()
    this.phase = 'stopped'
    this.isOver = true
    this.rejectAll(new CommitError('stopped', STOPPED))
  }

  status(): CommitterStatus {
    const { session } = this
    const fault = this.fault ?? this.options.anchors.fault()
    return {
      phase: this.phase === 'following' && fault !== null ? 'failing' : this.phase,
      fault: fault && { name: fault.error.name, message: fault.error.message },
      failingForMs: fault === null ? 0 : performance.now() - fault.sinceMs,
      notary: session?.notary.address ?? null,
      size: Math.max(session?.log.edge.size ?? 0, this.readable.size),
      ...this.figures,
      waiting: this.waiters.count,
    }
  }

  /** Goes on until a stop: whatever fails is tried again. */
  private async run(): Promise<void> {
    do {
      try {
        const session = await this.openInTurn()
        if (this.isToCommit()) await this.follow(session)
        else await this.attend(session)
      } catch (error) {
        const size = this.session?.log.edge.size ?? -1
        this.session = null
        if (isLostRace(error) && this.isRace(size)) await this.loseRace(error)
        else {
          // Another gateway may be better off.
          await this.leaveTurn()
          await this.recover(asError(error))
        }
      }
    } while (!this.isStopping)
    await this.endInterval()
    await this.leaveTurn()
  }

  /** Opens the log with its turn tried for; what was read before it was gained is read anew. */
  private async openInTurn(): Promise<CommitSession> {
    for (;;) {
      const session = await this.open()
      const { address } = session.notary
      if (this.turn?.notary !== address) {
        await this.leaveTurn()
        this.readable = { size: 0, atMs: performance.now() }
        this.racingUntilMs = 0
        this.turn = this.options.turns.join(address, {
          onCommitted: (heard) => this.hear(heard),
          onChange: () => this.interrupt(),
        })
      }
      if (!(await this.turn.take())) return session
    }
  }

  /** Before a stop: who waits for the anchor of an interval is answered by it. */
  private async endInterval(): Promise<void> {
    const { turn, waiters, options } = this
    if (turn === null || options.anchors.intervalMs === 0) return
    try {
      await options.anchors.flush(turn.notary)
      await waiters.settle({ notary: turn.notary, size: this.readable.size }, this.readRecords)
    } catch (error) {
      options.log.debug({ err: asError(error) }, UNREAD)
    }
  }

  private async leaveTurn(): Promise<void> {
    const { turn } = this
    this.turn = null
    await turn?.leave()
  }

  private isToCommit(): boolean {
    return (this.turn?.mayCommit() ?? true) || performance.now() < this.racingUntilMs
  }

  /** Another gateway stored records, or this one. */
  private hear({ size, isByHolder, head }: HeardCommit): void {
    if (size <= this.readable.size) return
    if (head !== null) this.keepHead(size, head)
    this.readable = { size, atMs: performance.now() }
    if (this.options.anchors.intervalMs > 0) void this.settleReadable()
    if (!this.isAttending) {
      // Whose turn it is has come back.
      if (isByHolder && this.racingUntilMs > 0 && !(this.turn?.mayCommit() ?? true)) {
        this.racingUntilMs = 0
        this.interrupt()
      }
      return
    }
    this.succeed()
    void this.settleReadable()
  }

  private keepHead(size: number, head: ToldHead): void {
    const { session, turn, options } = this
    if (session === null || session.notary.address !== turn?.notary) return
    try {
      this.committed.keep(session.notary, size, head)
    } catch (error) {
      // Read from the database instead.
      options.log.warn(
        { err: asError(error), size },
        'another gateway reported no head of this log',
      )
    }
  }

  /**
   * Answers who waits here from what another gateway commits, until it is the turn of this one, or
   * it has to commit as well.
   */
  private async attend(session: CommitSession): Promise<void> {
    const { address } = session.notary
    this.hear({ size: session.log.edge.size, isByHolder: false, head: null })
    this.isAttending = true
    try {
      await this.settleReadable()
      let looks = 0
      while (!this.isReopening && !this.isOver && !this.isToCommit()) {
        if (this.isStopping && this.waiters.count === 0) return
        if (this.isOverdue()) {
          // Also when a notice was lost: then there is something to read.
          const all = { notary: address, size: Number.POSITIVE_INFINITY }
          if ((await this.waiters.settle(all, this.readRecords)) > 0) continue
          this.racingUntilMs = performance.now() + RACING_MS
          this.options.log.debug({ notary: address }, 'another gateway is late, committing as well')
          return
        }
        await pause(ATTEND_INTERVAL_MS, this.interruption.signal)
        // Nothing is pulled that would show that another enclave answers, or none.
        if (++looks % LOOKS_PER_IDENTITY === 0) {
          const { notary } = await this.options.enclave.identity()
          if (notary !== address) return
          // Nobody waits in vain.
          if (this.waiters.count === 0) this.succeed()
        }
      }
    } finally {
      this.isAttending = false
    }
  }

  /** Whether somebody has waited for long without anything being stored. */
  private isOverdue(): boolean {
    const waitedMs = performance.now() - Math.max(this.waiters.oldestMs(), this.readable.atMs)
    return waitedMs > TURN_PATIENCE_MS + this.options.anchors.intervalMs
  }

  /** Settles who waits for what can be read: one reading at a time. Never rejects. */
  private async settleReadable(): Promise<void> {
    this.hasToSettle = true
    if (this.isSettling) return
    this.isSettling = true
    while (this.hasToSettle) {
      this.hasToSettle = false
      const { turn, readable, waiters, options } = this
      try {
        if (turn !== null)
          await waiters.settle({ notary: turn.notary, size: readable.size }, this.readRecords)
      } catch (error) {
        // Tried again when they are overdue, and then told.
        options.log.debug({ err: asError(error) }, UNREAD)
      }
    }
    this.isSettling = false
  }

  /** False when so many were lost in a row while the log stayed as it was that it is a fault. */
  private isRace(size: number): boolean {
    const { racesAt } = this
    this.racesAt = { size, count: racesAt.size === size ? racesAt.count + 1 : 0 }
    return this.racesAt.count <= RACES_WITHOUT_GROWTH_MAX
  }

  private async loseRace(error: unknown): Promise<void> {
    this.count('races')
    this.options.onRace?.()
    this.options.log.debug({ err: asError(error) }, 'another gateway committed first')
    this.racesInRow++
    if (this.racesInRow > RACES_IN_ROW_MAX) await pause(BACKOFF_MIN_MS, this.interruption.signal)
  }

  private async open(): Promise<CommitSession> {
    this.isReopening = false
    const present = new Set(this.waiters.all())
    const session = await openSession(this.options)
    this.session = session
    for (const waiter of this.waiters.all()) {
      const isOfThisLog = waiter.notary === session.notary.address
      if (isOfThisLog && waiter.index >= session.log.edge.size) continue
      // One that came after the enclave was asked may be of the next enclave: then it is asked
      // again.
      if (isOfThisLog || present.has(waiter)) await this.settleStored(waiter)
      else this.isReopening = true
    }
    this.enter(this.fault === null ? 'following' : 'failing')
    return session
  }

  /** Commits what comes, until there is a reason to look anew whom to follow and from where. */
  private async follow(opened: CommitSession): Promise<void> {
    let session = opened
    while (!this.isReopening && !this.isOver && this.isToCommit()) {
      // What is still sealed while a stop runs comes at once; an empty reply then says that all is
      // committed.
      const isLast = this.isStopping
      const reply = await this.pull(session, isLast || this.fault !== null ? 0 : PULL_WAIT_MS)
      if (reply === null) continue
      if (reply.notary !== session.notary.address) return
      session = { ...session, proofs: [] }
      if (reply.completions.length > 0) session = await this.commit(session, reply)
      this.succeed()
      if (isLast && reply.completions.length === 0) return
    }
  }

  /** Null when the poll was interrupted. */
  private async pull(session: CommitSession, waitMs: number): Promise<PullReply | null> {
    const { signal } = this.interruption
    const { known, log, proofs } = session
    const from = log.edge.size
    const request = {
      from,
      wait_ms: waitMs,
      max: this.batchMax,
      known_document: known?.digest ?? null,
      ...(proofs.length > 0 ? { proofs } : {}),
    }
    try {
      return await this.options.enclave.pull(request, signal)
    } catch (error) {
      if (signal.aborted) return null
      throw error
    }
  }

  private async commit(session: CommitSession, reply: PullReply): Promise<CommitSession> {
    const startedAtMs = performance.now()
    const { options } = this
    const committed = await commitReply(session, reply, options)
    this.session = committed.session
    const endedAtMs = performance.now()
    const { commits, records, largestBatch } = this.figures
    this.figures = {
      ...this.figures,
      commits: commits + 1,
      records: records + committed.count,
      lastBatch: committed.count,
      largestBatch: Math.max(largestBatch, committed.count),
      lastCommitAtMs: endedAtMs,
      lastCommitMs: endedAtMs - startedAtMs,
    }
    this.batchMax = Math.min(BATCH_COMPLETIONS_MAX, this.batchMax * 2)
    const { recordOf, from, count } = committed
    const notary = session.notary.address
    if (recordOf === null) options.anchors.note({ notary, size: from + count })
    else
      for (let index = from; index < from + count; index++)
        for (const waiter of this.waiters.of(notary, index)) waiter.resolve(recordOf(index))
    options.onCommit?.()
    return committed.session
  }

  private count(what: 'races' | 'failures'): void {
    this.figures = { ...this.figures, [what]: this.figures[what] + 1 }
  }

  private succeed(): void {
    if (this.fault !== null)
      this.options.log.info({ failures: this.failuresInRow }, 'commits go on')
    this.fault = null
    this.faultLog.clear()
    this.failuresInRow = 0
    this.racesInRow = 0
    this.enter('following')
  }

  /**
   * Answers a waiter from the database. One whose leaf waits for its anchor waits on; one whose
   * leaf is not there waits for what is gone.
   */
  private async settleStored(waiter: Waiter): Promise<void> {
    const { records, commits, anchors } = this.options
    const { notary, index } = waiter
    const record = await records.findByIndex(notary, index)
    if (record !== null) return waiter.resolve(record)
    const size = (await commits.sizeOf(notary)) ?? 0
    if (index < size) anchors.note({ notary, size })
    else
      waiter.reject(
        new CommitError(
          'notary_gone',
          `leaf ${index} of log ${notary} was not handed over in time`,
        ),
      )
  }

  private async recover(error: Error): Promise<void> {
    this.count('failures')
    this.failuresInRow++
    // A database that failed may be another one by now: a replica that was behind, or an older
    // state.
    if (!(error instanceof EnclaveError)) this.options.nonces.doubt()
    const isRefusal = error instanceof LogDiverged || error instanceof LogCorrupt
    this.enter(isRefusal ? 'refusing' : 'failing')
    if (isRefusal) this.rejectAll(new CommitError('log_diverged', DIVERGED))
    this.report(error)
    // It may have been too much at once: for a limit of the enclave's client, or for the database's
    // memory.
    this.batchMax = Math.max(1, Math.floor(this.batchMax / 2))
    const bounds = { minMs: BACKOFF_MIN_MS, maxMs: BACKOFF_MAX_MS }
    await pause(backOffMs(this.failuresInRow, bounds, { jitter: 'none' }), this.interruption.signal)
  }

  private report(error: Error): void {
    this.fault = { error, sinceMs: this.fault?.sinceMs ?? performance.now() }
    if (this.faultLog.isDue(`${error.name}: ${error.message}`))
      this.options.log.error({ err: error, phase: this.phase }, 'commit failed, trying again')
  }

  private enter(phase: CommitterStatus['phase']): void {
    if (!this.isOver) this.phase = phase
  }

  private rejectAll(error: CommitError): void {
    for (const waiter of this.waiters.all()) waiter.reject(error)
  }

  private reopen(): void {
    this.isReopening = true
    this.interrupt()
  }

  private interrupt(): void {
    this.interruption.abort(INTERRUPTED)
    this.interruption = new AbortController()
  }
}

/**
 * Another gateway on the same database was faster: seen by the database, or by the enclave that it
 * had acknowledged to.
 */
function isLostRace(error: unknown): boolean {
  if (error instanceof EnclaveError) return error.fault?.code === 'log_conflict'
  return error instanceof CommitRaceLost
}

/** Made once: an abort without a reason makes an exception with a stack each time. */
const INTERRUPTED = new Error('a poll or pause was interrupted')
const UNREAD = 'committed records could not be read'
const STOPPED = 'the committer is stopped'
const DIVERGED = 'the database and the log of the enclave contradict each other'
