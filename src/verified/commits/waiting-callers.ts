import { asError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { CommitError } from '../commit-error.ts'
import type { AnsweredRecord, RecordsStore } from '../records/records-store.ts'
import type { Notary } from './check-batch.ts'
import { CommitWaiters, type Waiter } from './commit-waiters.ts'
import type { CommitsStore } from './commits-store.ts'
import type { EncodedHead } from './committed-heads.ts'
import { CommittedRecords } from './committed-records.ts'
import type { CommittedLog, IntervalAnchors } from './interval-anchors.ts'

type WaitingCallersOptions = {
  readonly records: Pick<RecordsStore, 'findByIndex' | 'findByIndexes' | 'findHeadless'>
  readonly commits: Pick<CommitsStore, 'sizeOf'>
  readonly anchors: Pick<IntervalAnchors, 'schedule'>
  readonly log: Logger
}

export class WaitingCallers {
  readonly waiters = new CommitWaiters()
  readonly #options: WaitingCallersOptions
  readonly #committed: CommittedRecords
  /** By notary: a size. Callers that wait for leaves below this size can be answered now. */
  readonly #readable = new Map<string, number>()
  #reading: Promise<boolean> | null = null

  constructor(options: WaitingCallersOptions) {
    this.#options = options
    this.#committed = new CommittedRecords(options.records)
  }

  rejectAll(error: CommitError): void {
    for (const waiter of this.waiters.all()) waiter.reject(error)
  }

  resolve(
    notary: string,
    { from, count }: { readonly from: number; readonly count: number },
    recordOf: (index: number) => AnsweredRecord,
  ): void {
    for (let index = from; index < from + count; index++)
      for (const waiter of this.waiters.of(notary, index)) waiter.resolve(recordOf(index))
  }

  /** Keeps the head in memory, so that the next reads need less from the database. */
  keepHead(notary: Notary, size: number, head: EncodedHead): void {
    try {
      this.#committed.keep(notary, size, head)
    } catch (error) {
      // Without the head in memory, the records are read from the database.
      const facts = { err: asError(error), size }
      this.#options.log.warn(facts, 'another gateway reported no head of this log')
    }
  }

  /** Answers callers for the first `size` leaves. Returns how many records were found. */
  settle(log: CommittedLog): Promise<number> {
    return this.waiters.settle(log, (notary, leaves) => this.#committed.read(notary, leaves))
  }

  /**
   * Like `settle`, but only one read runs at a time: a call during a read waits for the next read.
   * Never rejects: resolves to false if records could not be read. Their callers still wait.
   */
  answer({ notary, size }: CommittedLog): Promise<boolean> {
    this.#readable.set(notary, size)
    this.#reading ??= this.#read()
    return this.#reading
  }

  async #read(): Promise<boolean> {
    let areRead = true
    for (const [notary, size] of this.#readable) {
      this.#readable.delete(notary)
      try {
        await this.settle({ notary, size })
      } catch (error) {
        areRead = false
        this.#options.log.debug({ err: asError(error) }, 'committed records could not be read')
      }
    }
    this.#reading = null
    return areRead
  }

  /**
   * If the record is stored, resolves the waiter. If the leaf waits for its anchor, the waiter
   * continues to wait. Otherwise the leaf is lost, and the waiter is rejected.
   */
  async answerStored(waiter: Waiter): Promise<void> {
    const { records, commits, anchors } = this.#options
    const { notary, index } = waiter
    const record = await records.findByIndex(notary, index)
    if (record !== null) return waiter.resolve(record)
    const size = (await commits.sizeOf(notary)) ?? 0
    if (index < size) anchors.schedule({ notary, size })
    else
      waiter.reject(
        new CommitError(
          'notary_gone',
          `leaf ${index} of log ${notary} was not handed over in time`,
        ),
      )
  }
}
