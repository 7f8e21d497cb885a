import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { SealedNotice } from '#enclave/protocol/enclave-api.ts'
import type { Database } from '#src/storage/database.ts'
import { CommitError } from '#src/verified/commit-error.ts'
import { createRecordsStore, type StoredRecord } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import { createScriptedLog, type ScriptedLog, TEST_DOMAIN } from '../../../support/scripted-log.ts'
import { type RunningCommitter, randomRelayer, runCommitter } from './run-committer.ts'

const never = new AbortController().signal

const FAULTS = ['before the commit', 'after the commit', 'pull', 'reply'] as const
type Fault = (typeof FAULTS)[number]
const NO_FAULTS = { 'before the commit': 0, 'after the commit': 0, pull: 0, reply: 0 }

/** What may happen, at any time and in any order. */
const step = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 12 }).map((count) => ({ seal: count })) },
  {
    weight: 6,
    arbitrary: fc.record({
      fail: fc.constantFrom(...FAULTS),
      times: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      go: fc.constantFrom(
        ...(['database down', 'database up', 'enclave down', 'enclave up'] as const),
        ...(['renew the document', 'let commits run'] as const),
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      go: fc.constantFrom(
        ...(['restart the gateway', 'crash the gateway', 'restart the enclave'] as const),
      ),
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
  private faults: Record<Fault, number> = { ...NO_FAULTS }

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
    if ('seal' in taken) for (let count = 0; count < taken.seal; count++) this.ask(this.log.seal())
    else if ('fail' in taken) this.faults[taken.fail] += taken.times
    else await this.go(taken.go)
  }

  private async go(what: Extract<Step, { go: string }>['go']): Promise<void> {
    const { log, running } = this
    switch (what) {
      case 'database down':
      case 'database up':
        running.script.isDatabaseDown = what === 'database down'
        return
      case 'enclave down':
      case 'enclave up':
        return log.setDown(what === 'enclave down')
      case 'renew the document':
        return log.renewDocument()
      case 'let commits run':
        // A query on another connection takes about as long as theirs.
        await this.database.queries.selectFrom('logs').select('id').limit(1).execute()
        return
      case 'crash the gateway':
      case 'restart the gateway':
        if (what === 'crash the gateway') {
          // What it has under way is stored or not. It gets no answer, and reaches nothing.
          running.script.isDatabaseDown = true
          running.script.afterCommit = () => {
            throw new Error('made to fail: crash')
          }
        }
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
    this.faults = { ...NO_FAULTS }
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
    started.script.beforeCommit = () => this.spend('before the commit')
    started.script.afterCommit = () => this.spend('after the commit')
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

  private spend(which: Fault): void {
    if (this.faults[which] <= 0) return
    this.faults[which]--
    throw new Error(`made to fail: ${which}`)
  }
}

const database = await useDatabase()

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
    { numRuns: 6, endOnFailure: true },
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
    const sizes = anchors.filter((anchor) => anchor.notary === notary).map((anchor) => anchor.size)
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
