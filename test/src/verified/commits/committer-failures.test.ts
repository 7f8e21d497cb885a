import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SealedNotice } from '#enclave/protocol/enclave-api.ts'
import type { Database } from '#src/storage/database.ts'
import { CommitError } from '#src/verified/commit-error.ts'
import { createRecordsStore, type StoredRecord } from '#src/verified/records/records-store.ts'
import { type DatabaseSource, startDatabases } from '../../../support/databases.ts'
import { createScriptedLog, type ScriptedLog, TEST_DOMAIN } from '../../../support/scripted-log.ts'
import { type RunningCommitter, randomRelayer, runCommitter } from './run-committer.ts'

const never = new AbortController().signal

/** What may happen, at any time and in any order. */
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('seal' as const),
      count: fc.integer({ min: 1, max: 12 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'fail before the commit' as const,
        'fail after the commit' as const,
        'fail the pull' as const,
        'lose the reply' as const,
      ),
      count: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        'database down' as const,
        'database up' as const,
        'enclave down' as const,
        'enclave up' as const,
        'renew the document' as const,
        'settle' as const,
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('restart the gateway' as const, 'restart the enclave' as const),
    }),
  },
)
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never

type Asked = { readonly notice: SealedNotice; readonly answer: Promise<StoredRecord | CommitError> }

class Trial {
  readonly database: Database
  readonly relayer = randomRelayer()
  readonly signed: RunningCommitter['signed'] = []
  readonly asked: Asked[] = []
  /** Sizes that logs had when their enclave went. */
  readonly logs: { readonly notary: string; readonly size: number }[] = []
  private readonly log: ScriptedLog
  private running: RunningCommitter
  private failures = { before: 0, after: 0, pull: 0, reply: 0 }

  constructor(database: Database, log: ScriptedLog) {
    this.database = database
    this.log = log
    log.script.beforePull = () => this.spend('pull')
    log.script.afterPull = (reply) => {
      if (reply.completions.length > 0) this.spend('reply')
      return reply
    }
    this.running = this.start()
  }

  async take(taken: Step): Promise<void> {
    const { log, running, failures } = this
    switch (taken.kind) {
      case 'seal':
        for (let count = 0; count < taken.count; count++) this.ask(log.seal())
        return
      case 'fail before the commit':
        failures.before += taken.count
        return
      case 'fail after the commit':
        failures.after += taken.count
        return
      case 'fail the pull':
        failures.pull += taken.count
        return
      case 'lose the reply':
        failures.reply += taken.count
        return
      case 'database down':
      case 'database up':
        running.script.isDatabaseDown = taken.kind === 'database down'
        return
      case 'enclave down':
      case 'enclave up':
        log.setDown(taken.kind === 'enclave down')
        return
      case 'renew the document':
        log.renewDocument()
        return
      case 'settle':
        await new Promise((resolve) => setTimeout(resolve, 20))
        return
      case 'restart the gateway':
        await running.committer.stop()
        this.running = this.start()
        return
      case 'restart the enclave':
        this.logs.push({ notary: log.notary(), size: log.size() })
        await log.restart()
    }
  }

  /** Lets everything work again, and waits until it has settled. */
  async heal(): Promise<void> {
    this.failures = { before: 0, after: 0, pull: 0, reply: 0 }
    this.running.script.isDatabaseDown = false
    this.log.setDown(false)
    const last = this.log.seal()
    this.ask(last)
    this.logs.push({ notary: this.log.notary(), size: this.log.size() })
    await this.running.committer.waitFor(last.notary, last.index, never)
    await Promise.all(this.asked.map(({ answer }) => answer))
  }

  stop(): Promise<void> {
    return this.running.committer.stop()
  }

  private start(): RunningCommitter {
    const started = runCommitter(this.database, this.log, {
      relayer: this.relayer,
      signed: this.signed,
    })
    started.script.beforeCommit = () => this.spend('before')
    started.script.afterCommit = () => this.spend('after')
    return started
  }

  private ask(notice: SealedNotice): void {
    const answer = this.running.committer.waitFor(notice.notary, notice.index, never)
    this.asked.push({
      notice,
      answer: answer.catch((error) => {
        if (error instanceof CommitError) return error
        throw error
      }),
    })
  }

  private spend(which: keyof typeof this.failures): void {
    if (this.failures[which] <= 0) return
    this.failures[which]--
    throw new Error(`made to fail: ${which}`)
  }
}

describe('a committer through any failures', () => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  it('a committer stores every completion once and in order, through any failures, with nonces without a gap', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
        const trial = new Trial(database, await createScriptedLog())
        try {
          for (const each of steps) {
            await trial.take(each)
            // Commits, replies and retries come in between.
            await new Promise((resolve) => setImmediate(resolve))
          }
          await trial.heal()
        } finally {
          await trial.stop()
        }
        await checkStored(trial)
      }),
      { numRuns: 12, endOnFailure: true },
    )
  }, 120_000)

  async function checkStored({ relayer, signed, asked, logs }: Trial): Promise<void> {
    const anchors = await database.queries
      .selectFrom('anchors')
      .innerJoin('logs', 'logs.id', 'anchors.log_id')
      .select(['anchors.nonce', 'anchors.tx_hash', 'anchors.size', 'logs.notary'])
      .where('anchors.relayer', '=', relayer)
      .orderBy('anchors.nonce')
      .execute()
    expect(anchors.map(({ nonce }) => nonce)).toEqual(anchors.map((_, at) => at))
    const hashes = anchors.map(({ tx_hash }) => `0x${Buffer.from(tx_hash).toString('hex')}`)
    for (const [nonce, hash] of hashes.entries()) expect(signed).toContainEqual({ nonce, hash })

    const stored = new Map<string, number>()
    for (const { notary, size } of logs) {
      const rows = await database.queries
        .selectFrom('records')
        .innerJoin('logs', 'logs.id', 'records.log_id')
        .select(['records.index', 'records.nonce'])
        .where('logs.notary', '=', notary)
        .orderBy('records.position')
        .execute()
      stored.set(notary, rows.length)
      expect(rows.map(({ index }) => index)).toEqual(rows.map((_, index) => index))
      if (notary === logs.at(-1)?.notary) expect(rows).toHaveLength(size)
      const sizes = anchors
        .filter((anchor) => anchor.notary === notary)
        .map((anchor) => anchor.size)
      expect(sizes).toEqual(sizes.toSorted((left, right) => left - right))
      expect(sizes.at(-1) ?? 0).toBe(rows.length)
    }

    const records = createRecordsStore(database, TEST_DOMAIN.chainId)
    for (const { notice, answer } of asked) {
      const given = await answer
      const { notary, index } = notice
      if (!(given instanceof CommitError)) {
        expect(hashes).toContain(given.txHash)
        expect(await records.findByIndex(notary, index)).toEqual(given)
      } else if (given.code === 'notary_gone') {
        expect(notary).not.toBe(logs.at(-1)?.notary)
        expect(index).toBeGreaterThanOrEqual(stored.get(notary) ?? Number.NaN)
      } else expect(given.code).toBe('stopped')
    }
  }
})
