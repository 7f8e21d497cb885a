import { randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { emptyEdge } from '#attestation/merkle/edge.ts'
import { CommitRaceLost } from '#src/chain/relayers-store.ts'
import { createCommitsStore, LogCorrupt } from '#src/verified/commits/commits-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import { until } from '../../../support/until.ts'
import {
  buildCommit,
  makeLog,
  OPENING,
  openLog,
  stateAfter,
  storeCommits,
  type TestLog,
} from './build-commit.ts'

const database = await useDatabase()
const commits = createCommitsStore(database)

const reopen = ({ notary, publicKey }: TestLog) =>
  commits.openLog({ notary, publicKey, ...OPENING })
const findAll = async ({ notary }: TestLog, count: number) => {
  const records = createRecordsStore(database, OPENING.domain.chainId)
  return Promise.all(
    Array.from({ length: count }, (_, index) => records.findByIndex(notary, index)),
  )
}
const countAnchors = ({ relayer }: TestLog) =>
  database.queries
    .selectFrom('anchors')
    .select((row) => row.fn.countAll<number>().as('count'))
    .where('relayer', '=', relayer)
    .executeTakeFirstOrThrow()

it('a new log starts empty, and is found again', async () => {
  const log = makeLog()
  const first = await openLog(commits, log)
  expect(first.edge).toEqual(emptyEdge)
  expect(await reopen(log)).toEqual(first)
})

it('an unknown relayer has no nonce, and a known one keeps its first nonce', async () => {
  const { relayer } = makeLog()
  expect(await commits.nextNonce(relayer)).toBeNull()
  await commits.raiseNonce(relayer, 7)
  await commits.raiseNonce(relayer, 0)
  expect(await commits.nextNonce(relayer)).toBe(7)
})

it.each([1, 2, 7, 8, 100])(
  'the edge that a log had is found again after a commit of %i',
  async (count) => {
    const log = makeLog()
    const records = Array.from({ length: count }, () => ({}))
    const { state } = await storeCommits(commits, log, [records, [{}], records])
    const found = await reopen(log)
    expect(found.edge.size).toBe(2 * count + 1)
    expect(found).toEqual({
      logId: state.logId,
      edge: {
        size: state.edge.size,
        hashes: state.edge.hashes.map((hash) => expect.toSatisfy(sameBytes(hash))),
      },
    })
    expect(await commits.nextNonce(log.relayer)).toBe(3)
  },
)

it('the store of commits stores texts byte for byte', async () => {
  const log = makeLog()
  const request = '{"a":"\\u0000 \\\\ \\" \u{1f600} é 😀 \u2028 {}","n":1e-7}'
  const response = `{"long":"${'ä"\\\\'.repeat(5000)}"}`
  await storeCommits(commits, log, [[{ request, response }]])
  const [record] = await findAll(log, 1)
  expect(record?.request).toBe(request)
  expect(record?.response).toBe(response)
})

it('the record of an encrypted call is stored without texts, with its usage; half of one is refused', async () => {
  const log = makeLog()
  const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 }
  const encrypted = { request: null, response: null, usage }
  await storeCommits(commits, log, [[encrypted]])
  const [record] = await findAll(log, 1)
  expect(record).toMatchObject(encrypted)
  await expect(storeCommits(commits, makeLog(), [[{ request: null }]])).rejects.toThrow(
    /records_whole_or_encrypted/,
  )
})

it.each([
  ['the nonce is taken', { nonce: 1, behind: 0 }],
  ['the nonce is not yet due', { nonce: 3, behind: 0 }],
  ['the log went on', { nonce: 2, behind: 1 }],
])('nothing at all is stored when %s', async (_, { nonce, behind }) => {
  const log = makeLog()
  const { state: middle } = await storeCommits(commits, log, [[{}, {}]])
  const { state: newest } = await storeCommits(commits, log, [[{}]])
  const state = behind === 0 ? newest : middle
  const commit = buildCommit({ log, state, nonce, records: [{}, {}] })
  await expect(commits.commit(commit)).rejects.toThrow(CommitRaceLost)
  expect((await reopen(log)).edge.size).toBe(3)
  expect(await commits.nextNonce(log.relayer)).toBe(2)
  expect(await findAll(log, 5)).toEqual([
    expect.anything(),
    expect.anything(),
    expect.anything(),
    null,
    null,
  ])
  expect((await countAnchors(log)).count).toBe(2)
  const [digest = ''] = commit.documents.keys()
  const documents = await database.queries
    .selectFrom('attestation_documents')
    .select('digest')
    .where('digest', '=', Buffer.from(digest, 'hex'))
    .execute()
  expect(documents).toEqual([])
})

it('exactly one of several commits at the same place wins', async () => {
  const log = makeLog()
  const state = await openLog(commits, log)
  const rivals = Array.from({ length: 8 }, () =>
    buildCommit({ log, state, nonce: 0, records: [{}, {}] }),
  )
  const outcomes = await Promise.allSettled(rivals.map((commit) => commits.commit(commit)))
  const lost = outcomes.filter((outcome) => outcome.status === 'rejected')
  expect(lost.map((outcome) => outcome.reason)).toEqual(Array(7).fill(expect.any(CommitRaceLost)))
  const winner = rivals[outcomes.findIndex((outcome) => outcome.status === 'fulfilled')]
  const found = await findAll(log, 3)
  expect(found.map((record) => record?.id)).toEqual([
    ...(winner?.records.map(({ id }) => id) ?? []),
    undefined,
  ])
})

it('commits of several logs share one relayer, without a gap in its nonces', async () => {
  const first = makeLog()
  const second = { ...makeLog(), relayer: first.relayer }
  const third = { ...makeLog(), relayer: first.relayer }
  await Promise.all(
    [first, second, third].map(async (log) => {
      let state = await openLog(commits, log)
      for (let stored = 0; stored < 5; ) {
        const nonce = (await commits.nextNonce(log.relayer)) ?? 0
        const commit = buildCommit({ log, state, nonce, records: [{}, {}] })
        const outcome = await commits.commit(commit).catch((error) => error)
        if (outcome instanceof CommitRaceLost) continue
        expect(outcome).toBeUndefined()
        state = stateAfter(state, commit)
        stored++
      }
    }),
  )
  expect(await commits.nextNonce(first.relayer)).toBe(15)
  expect((await countAnchors(first)).count).toBe(15)
})

it.each(['at once', 'in intervals'])(
  'a commit of another log and relayer becomes readable only after the commit that has lower positions, anchored %s',
  async (anchored) => {
    const [slow, fast] = [makeLog(), makeLog()]
    const build = async (log: TestLog) => {
      const parts = { log, state: await openLog(commits, log), nonce: 0, records: [{}, {}] }
      const commit = buildCommit(parts)
      return anchored === 'at once' ? commit : { ...commit, anchor: null }
    }
    const [first, second] = [await build(slow), await build(fast)]
    // The first commit stores its document last, and waits there for this transaction.
    const other = await database.queries.startTransaction().execute()
    const [digest = ''] = first.documents.keys()
    await sql`
      insert into attestation_documents (digest, document, first_seen_at)
      values (${Buffer.from(digest, 'hex')}, '', 0)`.execute(other)
    const firstStored = commits.commit(first)
    await until('the first commit waits', async () => (await countWaiting()) === 1)
    let isStored = false
    const secondStored = commits.commit(second).then(() => {
      isStored = true
    })
    await until('the second goes on', async () => isStored || (await countWaiting()) === 2)
    const wasStoredFirst = isStored
    await other.rollback().execute()
    await Promise.all([firstStored, secondStored])
    expect(wasStoredFirst).toBe(false)
    const rows = await database.queries
      .selectFrom('records')
      .select('log_id')
      .where('log_id', 'in', [first.logId, second.logId])
      .orderBy('position')
      .execute()
    const { logId } = first
    expect(rows.map((row) => row.log_id)).toEqual([logId, logId, second.logId, second.logId])
  },
)

async function countWaiting(): Promise<number> {
  const { rows } = await sql`
    select from pg_locks where not granted and pid in (
      select pid from pg_stat_activity where datname = current_database())`.execute(
    database.queries,
  )
  return rows.length
}

it('a document that several records name is stored once, and taken again', async () => {
  const log = makeLog()
  let state = await openLog(commits, log)
  const document = randomBytes(100)
  for (const nonce of [0, 1]) {
    const commit = buildCommit({ log, state, nonce, records: [{}, {}], document })
    await commits.commit(commit)
    state = stateAfter(state, commit)
  }
  const [record] = await findAll(log, 1)
  expect(record?.attestation).toBe(document.toString('base64'))
})

it('a log whose nodes do not add up to its root is said to be corrupt', async () => {
  const log = makeLog()
  const { state } = await storeCommits(commits, log, [[{}, {}, {}]])
  await database.queries
    .updateTable('log_nodes')
    .set({ hash: randomBytes(32) })
    .where('log_id', '=', state.logId)
    .where('level', '=', 1)
    .execute()
  await expect(reopen(log)).rejects.toThrow(LogCorrupt)
})

it('a failure that is no lost race is reported as it is', async () => {
  const log = makeLog()
  const state = await openLog(commits, log)
  const commit = buildCommit({ log, state, nonce: 0, records: [{ accountId: 'no uuid' }] })
  await expect(commits.commit(commit)).rejects.toMatchObject({ code: '22P02' })
  expect((await reopen(log)).edge.size).toBe(0)
  expect(await commits.nextNonce(log.relayer)).toBe(0)
})

function sameBytes(expected: Uint8Array): (actual: Uint8Array) => boolean {
  return (actual) => Buffer.compare(actual, expected) === 0
}
