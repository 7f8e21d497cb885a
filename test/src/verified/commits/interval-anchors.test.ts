import { sql } from 'kysely'
import { beforeEach, expect, it } from 'vitest'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyInclusion } from '#attestation/merkle/verify.ts'
import { createLogsStore } from '#src/verified/logs/logs-store.ts'
import { NO_FILTERS, type StoredRecord } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import { createScriptedLog, type ScriptedLog } from '../../../support/scripted-log.ts'
import { type RunningCommitter, randomRelayer, runCommitter } from './run-committer.ts'

const never = new AbortController().signal
/** Longer than a test waits: what ends such an interval is a stop, or a flush. */
const LONG_MS = 10_000
const ALL = { accountId: null, limit: 100, cursor: null }

let log: ScriptedLog
let relayer: string

const start = (anchorIntervalMs: number) =>
  runCommitter(database, log, { relayer, anchorIntervalMs })
const committed = ({ committer }: RunningCommitter, size: number) =>
  expect.poll(() => committer.status().size).toBe(size)
const find = () => createLogsStore(database).find(log.notary())

function expectProven(record: StoredRecord, size: number): void {
  const { root, path } = record.logProof
  expect(record.logProof.size).toBe(size)
  verifyInclusion({
    index: record.index,
    head: { size, root: decodeHex(root) },
    leafHash: hashLeaf(encodeUtf8(record.receipt)),
    path: path.map(decodeHex),
  })
}

const database = await useDatabase()
beforeEach(async () => {
  log = await createScriptedLog()
  relayer = randomRelayer()
})

it('an anchor is one for all commits of an interval, and callers wait for it', async () => {
  const running = start(LONG_MS)
  const answers: Promise<StoredRecord>[] = []
  for (let leaf = 0; leaf < 3; leaf++) {
    answers.push(running.committer.waitFor(log.notary(), log.seal().index, never))
    await committed(running, leaf + 1)
  }
  expect([running.committer.status().commits, running.signed]).toEqual([3, []])
  await running.anchors.flush(log.notary())
  const records = await Promise.all(answers)
  expect(running.signed).toHaveLength(1)
  for (const record of records) {
    expect(record.txHash).toBe(running.signed[0]?.hash)
    expectProven(record, 3)
  }
  await running.committer.stop()
  expect(running.complaints).toEqual([])
})

it('records are in no list and no log before the anchor of their interval is made', async () => {
  const running = start(LONG_MS)
  log.seal()
  await committed(running, 1)
  await running.anchors.flush(log.notary())
  log.seal()
  log.seal()
  await committed(running, 3)
  const { records } = running
  expect(await records.findByIndex(log.notary(), 0)).not.toBeNull()
  expect(await records.findByIndex(log.notary(), 1)).toBeNull()
  const shown = await find()
  expect([shown?.size, encodeHex(shown?.root ?? new Uint8Array())]).toEqual([
    1,
    (await records.findByIndex(log.notary(), 0))?.logProof.root,
  ])
  const logId = shown?.logId ?? expect.unreachable()
  const rest = { accountId: null, logId, start: 0, limit: 10 }
  expect((await records.listFrom(rest)).map(({ index }) => index)).toEqual([0])

  // Another log's record is anchored, but comes after those in the list.
  const first = log
  log = await createScriptedLog()
  const other = runCommitter(database, log, { relayer: randomRelayer() })
  const late = await other.committer.waitFor(log.notary(), log.seal().index, never)
  const listed = async () => {
    const page = await records.list(ALL)
    return page === 'unknown_cursor' ? expect.unreachable() : page.records.map(({ id }) => id)
  }
  expect(await listed()).not.toContain(late.id)
  await running.anchors.flush(first.notary())
  expect(await listed()).toContain(late.id)
  await Promise.all([running.committer.stop(), other.committer.stop()])
})

it('the anchor of an interval is made by a stop', async () => {
  const running = start(LONG_MS)
  const answer = running.committer.waitFor(log.notary(), log.seal().index, never)
  await committed(running, 1)
  await running.committer.stop()
  expect((await answer).txHash).toBe(running.signed[0]?.hash)
})

it('the anchor of an interval is made after a crash, also with its enclave gone', async () => {
  const crashed = start(LONG_MS)
  crashed.committer.waitFor(log.notary(), log.seal().index, never).catch(() => undefined)
  await committed(crashed, 1)
  // From here on, the crashed committer does not reach the database.
  crashed.script.isDatabaseDown = true
  const { anchors, signed, committer } = runCommitter(database, await createScriptedLog(), {
    relayer: randomRelayer(),
  })
  await anchors.settle(log.notary(), never)
  const record = await crashed.records.findByIndex(log.notary(), 0)
  expect(record?.txHash).toBe(signed[0]?.hash)
  await anchors.settle(log.notary(), never)
  expect(signed).toHaveLength(1)
  await Promise.all([committer.stop(), crashed.committer.stop()])
})

it('an anchor that nobody made is found by whoever looks', async () => {
  const crashed = start(LONG_MS)
  log.seal()
  await committed(crashed, 1)
  crashed.script.isDatabaseDown = true
  const other = runCommitter(database, await createScriptedLog(), {
    relayer: randomRelayer(),
    looks: { lookIntervalMs: 20, lateSeconds: 0 },
  })
  await expect.poll(() => crashed.records.findByIndex(log.notary(), 0)).not.toBeNull()
  await Promise.all([other.committer.stop(), crashed.committer.stop()])
})

it('commits without an anchor on an earlier chain get none on this chain, and hide no other records', async () => {
  const crashed = start(LONG_MS)
  const earlier = log.notary()
  log.seal()
  await committed(crashed, 1)
  await crashed.anchors.flush(earlier)
  log.seal()
  log.seal()
  await committed(crashed, 3)
  crashed.script.isDatabaseDown = true
  await sql`update logs set chain_id = 1 where notary = ${earlier}`.execute(database.queries)
  log = await createScriptedLog()
  const running = start(0)
  await running.anchors.settle(earlier, never)
  expect(running.signed).toEqual([])
  const { id, index } = await running.committer.waitFor(log.notary(), log.seal().index, never)
  for (const filters of [NO_FILTERS, { ...NO_FILTERS, outcome: 'complete' as const }]) {
    const page = { accountId: null, limit: 1, filters }
    const newest = await running.records.list({ ...page, cursor: null })
    expect(newest).toMatchObject({ records: [{ notary: log.notary(), index }], cursor: id })
    const next = await running.records.list({ ...page, cursor: id })
    expect(next).toMatchObject({ records: [{ notary: earlier, index: 0 }] })
  }
  await Promise.all([running.committer.stop(), crashed.committer.stop()])
})

it('the anchor of an interval is made once, whatever fails around it', async () => {
  const running = start(20)
  let failures = 4
  running.script.beforeAnchor = () => {
    if (failures-- > 2) throw new Error('connect ECONNREFUSED')
  }
  running.script.afterAnchor = () => {
    if (failures-- > 0) throw new Error('connection broke after the server was done')
  }
  const records: StoredRecord[] = []
  for (let leaf = 0; leaf < 8; leaf++)
    records.push(await running.committer.waitFor(log.notary(), log.seal().index, never))
  const hashes = new Set(running.signed.map(({ hash }) => hash))
  for (const record of records) {
    expect(hashes).toContain(record.txHash)
    expectProven(record, record.logProof.size)
  }
  await expect.poll(() => running.committer.status().phase).toBe('following')
  await running.committer.stop()
})
