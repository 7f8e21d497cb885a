import type { PullReply } from '../../enclave/protocol/messages.ts'
import { asError } from '../api/errors.ts'
import { CommitRaceLost } from '../chain/relayers-store.ts'
import type { EnclaveClient } from '../enclaves/enclave-client.ts'
import { EnclaveError } from '../enclaves/enclave-errors.ts'
import type { Logger } from '../observability/logger.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { pause } from '../runtime/loop.ts'
import {
  type CommitSession,
  commitReply,
  LogDiverged,
  openSession,
  type SessionOptions,
} from './commit-session.ts'
import { LogCorrupt } from './commits-store.ts'
import type { RecordsStore, StoredRecord } from './records-store.ts'

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
   * signal's reason (the leaf is then committed all the same), or CommitError.
   */
  waitFor(notary: string, index: number, signal: AbortSignal): Promise<StoredRecord>
  /**
   * Commits what the enclave still holds, within STOP_TIMEOUT_MS, rejects who is left waiting, and
   * resolves when all is over.
   */
  stop(): Promise<void>
  status(): CommitterStatus
}

export type CommitErrorCode =
  | 'notary_gone' //   the enclave that sealed it is gone, and took it along uncommitted: it is lost
  | 'log_diverged' //  the database lost what the enclave was told is safe; nothing is committed until that is repaired
  | 'stopped' //       the gateway stops; the leaf is committed after its next start if the enclave lives on

/** Why a leaf that somebody waits for is not committed here and now. */
export class CommitError extends Error {
  override readonly name = 'CommitError'
  readonly code: CommitErrorCode

  constructor(code: CommitErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

export type CommitterOptions = SessionOptions & {
  readonly enclave: Pick<EnclaveClient, 'pull'>
  readonly records: Pick<RecordsStore, 'findByIndex'>
  /** Told after each commit: there is a new anchor to broadcast. */
  readonly onCommit?: () => void
  readonly log: Logger
}

/**
 * Gives the committer: it pulls what the enclave sealed, checks it, and stores it together with its
 * signed anchor, one commit at a time; whatever is sealed meanwhile is the next. A pull starts at
 * the size of the log in the database, and so acknowledges exactly what is durable. After any
 * failure it reads anew where the log stands: a commit whose outcome was unknown has then either
 * happened, or is done again with the same nonce.
 */
export function createCommitter(options: CommitterOptions): Committer {
  return new LogFollower(options)
}

class LogFollower implements Committer {
  private readonly options: CommitterOptions
  private readonly waiters = new CommitWaiters()
  private figures = NO_FIGURES
  private phase: CommitterStatus['phase'] = 'stopped'
  private fault: { readonly error: Error; readonly sinceMs: number } | null = null
  private readonly faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  private failuresInRow = 0
  private racesInRow = 0
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
  }

  start(): void {
    if (this.phase !== 'stopped' || this.isStopping) return
    this.phase = 'opening'
    this.running = this.run()
  }

  waitFor(notary: string, index: number, signal: AbortSignal): Promise<StoredRecord> {
    const { waiter, record } = this.waiters.add(notary, index, signal)
    const { session } = this
    if (this.phase === 'stopped') waiter.reject(new CommitError('stopped', STOPPED))
    else if (this.phase === 'refusing') waiter.reject(new CommitError('log_diverged', DIVERGED))
    else if (session !== null && notary !== session.notary.address) this.reopen()
    else if (session !== null && index < session.log.edge.size)
      this.settleStored(waiter).catch(() => this.reopen())
    return record
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
    const { session, fault } = this
    return {
      phase: this.phase,
      fault: fault && { name: fault.error.name, message: fault.error.message },
      failingForMs: fault === null ? 0 : performance.now() - fault.sinceMs,
      notary: session?.notary.address ?? null,
      size: session?.log.edge.size ?? 0,
      ...this.figures,
      waiting: this.waiters.count,
    }
  }

  /** Goes on until a stop: whatever fails is tried again. */
  private async run(): Promise<void> {
    do {
      try {
        await this.follow(await this.open())
      } catch (error) {
        this.session = null
        if (isLostRace(error) && ++this.racesInRow <= RACES_IN_ROW_MAX) this.count('races')
        else await this.recover(asError(error))
      }
    } while (!this.isStopping)
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
    while (!this.isReopening && !this.isOver) {
      // What is still sealed while a stop runs comes at once; an empty reply then says that all is
      // committed.
      const isLast = this.isStopping
      const reply = await this.pull(session, isLast || this.fault !== null ? 0 : PULL_WAIT_MS)
      if (reply === null) continue
      if (reply.notary !== session.notary.address) return
      if (reply.completions.length > 0) session = await this.commit(session, reply)
      this.succeed()
      if (isLast && reply.completions.length === 0) return
    }
  }

  /** Null when the poll was interrupted. */
  private async pull(session: CommitSession, waitMs: number): Promise<PullReply | null> {
    const { signal } = this.interruption
    const { known, log } = session
    const from = log.edge.size
    const request = {
      from,
      wait_ms: waitMs,
      max: this.batchMax,
      known_document: known?.digest ?? null,
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
    for (let index = committed.from; index < committed.from + committed.count; index++)
      for (const waiter of this.waiters.of(session.notary.address, index))
        waiter.resolve(committed.recordOf(index))
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

  /** Answers a waiter from the database; one whose leaf is not there waits for what is gone. */
  private async settleStored(waiter: Waiter): Promise<void> {
    const record = await this.options.records.findByIndex(waiter.notary, waiter.index)
    if (record !== null) waiter.resolve(record)
    else
      waiter.reject(
        new CommitError(
          'notary_gone',
          `leaf ${waiter.index} of log ${waiter.notary} was not handed over in time`,
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
    this.interruption.abort()
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

const STOPPED = 'the committer is stopped'
const DIVERGED = 'the database and the log of the enclave contradict each other'

/** Somebody who waits for one leaf to be committed. */
type Waiter = {
  readonly notary: string
  readonly index: number
  /** Ends the waiting; only the first of both counts. */
  resolve(record: StoredRecord): void
  reject(error: Error): void
}

/** Everybody who waits, by the leaf they wait for. */
export class CommitWaiters {
  readonly #waiting = new Set<Waiter>()
  readonly #byLeaf = new Map<string, Set<Waiter>>()

  /**
   * Waits for a leaf. Rejects with the signal's reason once it is aborted; then nothing is left of
   * the waiter.
   */
  add(
    notary: string,
    index: number,
    signal: AbortSignal,
  ): { readonly waiter: Waiter; readonly record: Promise<StoredRecord> } {
    const { promise, resolve, reject } = Promise.withResolvers<StoredRecord>()
    const end = () => {
      this.#leave(waiter)
      signal.removeEventListener('abort', abort)
    }
    const abort = () => {
      end()
      reject(signal.reason)
    }
    const waiter: Waiter = {
      notary,
      index,
      resolve(record) {
        end()
        resolve(record)
      },
      reject(error) {
        end()
        reject(error)
      },
    }
    if (signal.aborted) reject(signal.reason)
    else {
      this.#enter(waiter)
      signal.addEventListener('abort', abort)
    }
    return { waiter, record: promise }
  }

  /** Those who wait for this leaf. */
  of(notary: string, index: number): readonly Waiter[] {
    return [...(this.#byLeaf.get(keyOf(notary, index)) ?? [])]
  }

  /** Everybody, in the order they came. */
  all(): readonly Waiter[] {
    return [...this.#waiting]
  }

  /** How many wait. */
  get count(): number {
    return this.#waiting.size
  }

  #enter(waiter: Waiter): void {
    this.#waiting.add(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    this.#byLeaf.set(key, (this.#byLeaf.get(key) ?? new Set()).add(waiter))
  }

  #leave(waiter: Waiter): void {
    this.#waiting.delete(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    const others = this.#byLeaf.get(key)
    others?.delete(waiter)
    if (others?.size === 0) this.#byLeaf.delete(key)
  }
}

function keyOf(notary: string, index: number): string {
  return `${notary}/${index}`
}
