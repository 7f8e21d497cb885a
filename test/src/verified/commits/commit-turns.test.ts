import { sql } from 'kysely'
import { afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import type { NoticeCompletion } from '#enclave/protocol/enclave-api.ts'
import { EnclaveError } from '#src/enclaves/enclave-errors.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import type { DatabaseSession } from '#src/storage/postgres-session.ts'
import { createCommitTurns } from '#src/verified/commits/commit-turns.ts'
import { createScriptedLog, type ScriptedLog } from '../../../support/scripted-log.ts'
import { createTestDatabase } from '../../../support/test-database.ts'
import { type RunningCommitter, randomRelayer, runCommitter } from './run-committer.ts'

const never = new AbortController().signal

type Faults = { isDeaf: boolean; isCut: boolean; alter: (payload: string) => string }

/** A gateway's committer, on connections of its own. */
type Gateway = RunningCommitter & {
  readonly database: Database
  /**
   * While they are set, no notice arrives, nothing can be pulled from here, and notices arrive
   * altered.
   */
  readonly faults: Faults
  /** Waits for the leaf here. */
  wait(index: number): Promise<number>
  stop(): Promise<void>
}

let url: string
let relayer: string
let log: ScriptedLog
const gateways: Gateway[] = []

async function start(): Promise<Gateway> {
  const database = await openDatabase({ url })
  const faults: Faults = { isDeaf: false, isCut: false, alter: (payload) => payload }
  const session = deafen(database.session ?? expect.unreachable(), faults)
  const turns = createCommitTurns({ session, gateway: crypto.randomUUID(), onNonce: () => {} })
  const pull: typeof log.enclave.pull = async (request, signal) => {
    if (!faults.isCut) return await log.enclave.pull(request, signal)
    throw new EnclaveError('unavailable', 'the enclave is out of reach')
  }
  const running = runCommitter(database, { enclave: { ...log.enclave, pull } }, { relayer, turns })
  let isOver = false
  const gateway: Gateway = {
    ...running,
    database,
    faults,
    wait: async (index) => (await running.committer.waitFor(log.notary(), index, never)).index,
    async stop() {
      if (isOver) return
      isOver = true
      await running.committer.stop()
      await database.close()
    },
  }
  gateways.push(gateway)
  return gateway
}

function deafen(session: DatabaseSession, faults: Faults): DatabaseSession {
  return {
    ...session,
    subscribe: (subscriber) =>
      session.subscribe({
        ...subscriber,
        onNotice: (payload) => {
          if (!faults.isDeaf) subscriber.onNotice(faults.alter(payload))
        },
      }),
  }
}

/** Who has locks of sessions, by process id of the server. Class 0 is a running commit's lock. */
async function holders({ queries }: Database): Promise<readonly number[]> {
  const { rows } = await sql<{ pid: number }>`
    select pid from pg_locks where locktype = 'advisory' and granted and classid <> 0
      and database = (select oid from pg_database where datname = current_database())`.execute(
    queries,
  )
  return rows.map(({ pid }) => pid)
}

/** Two of them: the first has the turn. */
async function startTwo(): Promise<readonly [Gateway, Gateway]> {
  const first = await start()
  await expect.poll(() => holders(first.database)).toHaveLength(1)
  const second = await start()
  await expect.poll(() => second.committer.status().phase).toBe('following')
  // It pulls until it is connected, and receives notice of the first one's turn then.
  log.seal()
  await second.wait(log.size() - 1)
  await expect.poll(() => pulls.size).toBe(1)
  return [first, second]
}

/** Pulls that wait for a leaf. */
const pulls = new Set<object>()

beforeAll(async () => {
  url = await createTestDatabase()
})
beforeEach(async () => {
  relayer = randomRelayer()
  log = await createScriptedLog()
  const { enclave } = log
  pulls.clear()
  const pull: typeof enclave.pull = async (request, signal) => {
    pulls.add(request)
    return await enclave.pull(request, signal).finally(() => pulls.delete(request))
  }
  log = { ...log, enclave: { ...enclave, pull } }
})

afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.stop()))
})

const sum = (read: (gateway: Gateway) => number) =>
  gateways.reduce((total, gateway) => total + read(gateway), 0)

it('two gateways give the same record, whether they committed it, heard of it or read it', async () => {
  const [first, second] = await startTwo()
  const readWhole = vi.spyOn(second.records, 'findByIndexes')
  const notices: string[] = []
  const stop = (first.database.session ?? expect.unreachable()).subscribe({
    onNotice: (payload) => notices.push(payload),
    onChange: () => {},
  })
  for (let round = 0; round < 8; round++) {
    const indexes = Array.from({ length: 1 + (round % 3) }, () => log.seal().index)
    const waits = [first, second].map(({ committer }) =>
      Promise.all(indexes.map((index) => committer.waitFor(log.notary(), index, never))),
    )
    const [committed, received] = await Promise.all(waits)
    expect(received).toEqual(committed)
    expect(await first.records.findByIndexes(log.notary(), indexes)).toEqual(committed)
  }
  stop()
  // Those that came before the notice of their commit, on a machine that is busy enough.
  expect(readWhole.mock.calls.length).toBeLessThan(5)
  expect(notices.some((payload) => 'head' in JSON.parse(payload))).toBe(true)
  expect(sum(({ complaints }) => complaints.length)).toBe(0)
})

it('two gateways read nothing of what the enclave told with its answer', async () => {
  const [first, second] = await startTwo()
  const reads = [
    vi.spyOn(second.records, 'findByIndexes'),
    vi.spyOn(second.records, 'findHeadless'),
  ]
  const standingBy = () => [first, second].map(({ committer }) => committer.isStandby(log.notary()))
  await expect.poll(standingBy).toEqual([false, true])
  const readsSoFar = () => reads.reduce((count, { mock }) => count + mock.calls.length, 0)
  // Not the first, whose document is not known yet; on a busy machine, notices come too late.
  let roundsWithout = 0
  for (let round = 0; roundsWithout < 4 && round < 200; round++) {
    const before = readsSoFar()
    const { index, completion } = log.seal({ inNotice: true })
    const [committed, reported] = await Promise.all([
      first.committer.waitFor(log.notary(), index, never),
      second.committer.waitFor(log.notary(), index, never, completion),
    ])
    expect(committed).toEqual(expect.objectContaining(reported))
    expect(reported).toMatchObject({
      response: completion?.response,
      logProof: committed.logProof,
    })
    const hasRead = readsSoFar() > before
    if (round === 0) expect(hasRead).toBe(true)
    if (!hasRead) roundsWithout++
  }
  expect(roundsWithout).toBe(4)
})

it.each<[string, (reported: NoticeCompletion) => NoticeCompletion]>([
  [
    'another response',
    (reported) => ({ ...reported, response: reported.response.replace('a', 'b') }),
  ],
  ['a receipt that is none', (reported) => ({ ...reported, receipt: '{' })],
  [
    'the receipt of another',
    (reported) => ({
      ...reported,
      receipt: reported.receipt.replace('"attempt":1', '"attempt":2'),
    }),
  ],
  ['a document that nobody stored', (reported) => ({ ...reported, document: 'd'.repeat(64) })],
])('what was committed is read when %s is told', async (_, alter) => {
  const [first, second] = await startTwo()
  const ask = (asked: (reported: NoticeCompletion) => NoticeCompletion) => {
    const { index, completion = expect.unreachable() } = log.seal({
      inNotice: true,
      content: 'a',
    })
    return Promise.all([
      first.committer.waitFor(log.notary(), index, never),
      second.committer.waitFor(log.notary(), index, never, asked(completion)),
    ])
  }
  await ask((reported) => reported)
  const [committed, reported] = await ask(alter)
  expect(reported).toEqual(committed)
  expect(sum(({ complaints }) => complaints.length)).toBe(0)
})

it('what another gateway reports wrongly is read whole', async () => {
  const [first, second] = await startTwo()
  second.faults.alter = (payload) =>
    payload.replace(/"leaves":"..../, (start) => `${start.slice(0, -4)}AAAA`)
  const complaints = () => new Set(second.complaints.map(({ message }) => message))
  // On a machine that is busy enough, the second commits as well before it reads the report.
  for (let attempts = 0; complaints().size === 0 && attempts < 20; attempts++) {
    const { index } = log.seal()
    const [committed, received] = await Promise.all(
      [first, second].map(({ committer }) => committer.waitFor(log.notary(), index, never)),
    )
    expect(received).toEqual(committed)
  }
  expect(complaints()).toEqual(new Set(['another gateway reported no head of this log']))
})

it('two gateways answer from what is stored when notices are lost', async () => {
  const [first, second] = await startTwo()
  second.faults.isDeaf = true
  const { commits } = second.committer.status()
  const { index } = log.seal()
  expect(await second.wait(index)).toBe(index)
  // On a machine that is busy enough, it finds the other one late, and commits as well.
  expect(second.committer.status().commits - commits).toBeLessThan(2)
  await expect.poll(() => first.committer.status().size).toBe(index + 1)
})

it('a gateway does not wait for one that hangs in its turn: the other commits after a while', async () => {
  const [first, second] = await startTwo()
  const hanging = Promise.withResolvers<void>()
  first.script.beforeCommit = () => hanging.promise
  const { commits } = second.committer.status()
  const { index } = log.seal()
  expect(await second.wait(index)).toBe(index)
  expect(second.committer.status().commits).toBe(commits + 1)
  // It goes on at once with the next ones.
  const next = log.seal()
  await second.wait(next.index)
  hanging.resolve()
  // The first is second now, reads again, and gets its turn back.
  await expect.poll(() => first.committer.status().races).toBeGreaterThan(0)
  const last = log.seal()
  expect(await first.wait(last.index)).toBe(last.index)
  expect(sum(({ complaints }) => complaints.length)).toBe(0)
})

it('a gateway hands over at once when it stops in its turn', async () => {
  const [first, second] = await startTwo()
  log.seal()
  await first.stop()
  const { index } = log.seal()
  expect(await second.wait(index)).toBe(index)
  await expect.poll(() => holders(second.database)).toHaveLength(1)
  expect(second.complaints).toEqual([])
})

it('two gateways go on when the connection with the locks is broken', async () => {
  const [first, second] = await startTwo()
  const [pid] = await holders(first.database)
  await sql`select pg_terminate_backend(${pid})`.execute(second.database.queries)
  for (let round = 0; round < 5; round++) {
    const { index } = log.seal()
    await Promise.all([first.wait(index), second.wait(index)])
  }
  await expect.poll(() => holders(first.database)).toHaveLength(1)
  await expect.poll(() => pulls.size).toBe(1)
  expect(sum(({ complaints }) => complaints.length)).toBe(0)
})

it('the turn is given to another gateway when the enclave is out of reach from here', async () => {
  const [first, second] = await startTwo()
  const [pid] = await holders(first.database)
  first.faults.isCut = true
  log.seal()
  // Its poll is under way, and would still bring this one.
  await second.wait(log.size() - 1)
  const { index } = log.seal()
  expect(await second.wait(index)).toBe(index)
  expect(await first.wait(index)).toBe(index)
  await expect.poll(() => holders(first.database)).not.toContain(pid)
})
