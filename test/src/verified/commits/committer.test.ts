import { afterEach, beforeEach, expect, it } from 'vitest'
import type { PullRequest, SealedNotice } from '#enclave/protocol/enclave-api.ts'
import { CommitError } from '#src/verified/commit-error.ts'
import { ALWAYS_OURS, type CommitTurns } from '#src/verified/commits/commit-turns.ts'
import { PULL_WAIT_MS } from '#src/verified/commits/follow-state.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { useDatabase } from '../../../support/databases.ts'
import {
  createScriptedLog,
  type ScriptedLog,
  TEST_ACCOUNT_ID,
  TEST_DOMAIN,
} from '../../../support/scripted-log.ts'
import { type RunningCommitter, runCommitter } from './run-committer.ts'

const never = new AbortController().signal

let log: ScriptedLog
let running: RunningCommitter
const others: RunningCommitter[] = []

const database = await useDatabase()
beforeEach(async () => {
  log = await createScriptedLog()
  running = runCommitter(database, log)
})
afterEach(async () => {
  log.setDown(false)
  running.script.beforeCommit = () => {}
  running.script.afterCommit = () => {}
  await Promise.all([running, ...others.splice(0)].map(({ committer }) => committer.stop()))
})

const waitFor = ({ notary, index }: SealedNotice, signal = never) =>
  running.committer.waitFor(notary, index, signal)
const sealAndWait = (count: number) =>
  Promise.all(Array.from({ length: count }, () => waitFor(log.seal())))
const phase = () => running.committer.status().phase
const anchorsOf = () =>
  database.queries
    .selectFrom('anchors')
    .select(['nonce', 'size'])
    .where('relayer', '=', running.relayer)
    .orderBy('nonce')
    .execute()

it('the committer gives the very record that the history gives', async () => {
  for (const count of [1, 4, 9]) {
    for (const record of await sealAndWait(count))
      expect(await running.records.findByIndex(record.notary, record.index)).toEqual(record)
  }
  expect(await anchorsOf()).toHaveLength(running.committer.status().commits)
})

it('the committer stores who asked, and when the enclave was done', async () => {
  const record = await waitFor(log.seal({ requestId: 'req-1' }))
  expect(record).toMatchObject({
    accountId: TEST_ACCOUNT_ID,
    requestId: 'req-1',
    createdAt: 1_790_000_001,
  })
})

it('a completion with a context of another form is stored without an account', async () => {
  for (const context of ['', '{"account_id":"\u0000","request_id":"r"}', '{"account_id":"x"}'])
    expect(await waitFor(log.seal({ context }))).toMatchObject({
      accountId: null,
      requestId: null,
    })
  expect(running.complaints).toEqual([])
})

it('the committer commits together what is sealed while a commit runs', async () => {
  await sealAndWait(1)
  const gate = Promise.withResolvers<void>()
  const began = Promise.withResolvers<void>()
  running.script.beforeCommit = () => {
    began.resolve()
    return gate.promise
  }
  const first = waitFor(log.seal())
  await began.promise
  const meanwhile = Array.from({ length: 20 }, () => waitFor(log.seal()))
  gate.resolve()
  await Promise.all([first, ...meanwhile])
  expect(running.committer.status()).toMatchObject({
    commits: 3,
    records: 22,
    lastBatch: 20,
    largestBatch: 20,
  })
})

it('the committer waits in the enclave while there is nothing to do', async () => {
  const requests: PullRequest[] = []
  log.script.beforePull = (request) => {
    requests.push(request)
  }
  await sealAndWait(1)
  await expect.poll(() => requests.at(-1)?.from).toBe(1)
  expect(requests.at(-1)?.wait_ms).toBe(PULL_WAIT_MS)
  const polls = requests.length
  await sealAndWait(1)
  await expect.poll(() => requests.at(-1)?.from).toBe(2)
  expect(requests).toHaveLength(polls + 1)
})

it('the committer acknowledges nothing before it is durable', async () => {
  const acknowledged: number[] = []
  running.script.beforeCommit = (commit) => {
    acknowledged.push(log.acknowledged() - commit.before.size)
  }
  running.script.afterCommit = running.script.beforeCommit
  for (let time = 0; time < 3; time++) await sealAndWait(2)
  expect(new Set(acknowledged)).toEqual(new Set([0]))
  await expect.poll(() => log.acknowledged()).toBe(6)
})

it('the committer commits what somebody waited for who left', async () => {
  log.setDown(true)
  const caller = new AbortController()
  const notice = log.seal()
  const waiting = waitFor(notice, caller.signal)
  caller.abort(new Error('gone'))
  await expect(waiting).rejects.toThrow('gone')
  expect(running.committer.status().waiting).toBe(0)
  log.setDown(false)
  expect(await waitFor(notice)).toMatchObject({ index: 0 })
})

it('the committer leaves a document out of the pull once it is stored, and stores the next one', async () => {
  const requests: PullRequest[] = []
  log.script.beforePull = (request) => {
    requests.push(request)
  }
  const [first] = await sealAndWait(2)
  log.renewDocument()
  const [second] = await sealAndWait(1)
  const [third] = await sealAndWait(1)
  expect(first?.attestation).not.toBe(second?.attestation)
  expect(second?.attestation).toBe(third?.attestation)
  expect(new Set(requests.map((request) => request.known_document)).size).toBeGreaterThan(1)
  expect(await running.records.findByIndex(log.notary(), 3)).toMatchObject({
    attestation: third?.attestation,
  })
})

it("the committer begins with the relayer's nonce on the chain, and asks until it is told", async () => {
  let asked = 0
  const other = runCommitter(database, log, {
    countTransactions: async () => {
      if (++asked < 3) throw new Error('the chain is out of reach')
      return 41
    },
  })
  others.push(other)
  await running.committer.stop()
  const { notary, index } = log.seal()
  await other.committer.waitFor(notary, index, never)
  expect(asked).toBe(3)
  expect(other.signed[0]?.nonce).toBe(41)
})

it('the committer follows the new log of a restarted enclave, and rejects who waits for the lost one', async () => {
  await sealAndWait(2)
  log.setDown(true)
  const lost = waitFor(log.seal())
  await log.restart()
  const next = waitFor(log.seal())
  log.setDown(false)
  await expect(lost).rejects.toMatchObject({ name: 'CommitError', code: 'notary_gone' })
  expect(await next).toMatchObject({ notary: log.notary(), index: 0 })
})

it('the committer tells who asks late that a leaf was lost with a restart of the enclave', async () => {
  await sealAndWait(1)
  log.setDown(true)
  const lost = log.seal()
  await log.restart()
  log.setDown(false)
  await sealAndWait(1)
  await expect(waitFor(lost)).rejects.toMatchObject({ code: 'notary_gone' })
})

it('the committer refuses to go on, loudly, when more was told safe than the database has', async () => {
  await sealAndWait(3)
  await running.committer.stop()
  const { notary } = await log.enclave.identity()
  await database.queries
    .updateTable('logs')
    .set({ notary: otherAddress() })
    .where('notary', '=', notary)
    .execute()
  running = runCommitter(database, log)
  await expect.poll(phase).toBe('refusing')
  const waiting = waitFor(log.seal())
  await expect(waiting).rejects.toMatchObject({ name: 'CommitError', code: 'log_diverged' })
  expect(running.complaints[0]?.error).toMatch(/^LogDiverged: expected at least \d leaves .* got 0/)
  expect(running.signed).toEqual([])
  await log.restart()
  await expect.poll(phase).toBe('following')
  expect((await sealAndWait(1))[0]).toMatchObject({ index: 0 })
})

it('the committer stores nothing of what does not fit', async () => {
  await sealAndWait(1)
  log.script.afterPull = (reply) => ({
    ...reply,
    completions: reply.completions.map((sealed) => ({ ...sealed, response: '{}' })),
  })
  const waiting = waitFor(log.seal())
  await expect.poll(() => running.complaints.length).toBeGreaterThan(0)
  expect(running.complaints[0]?.error).toMatch(/^BatchRefused/)
  expect(await running.records.findByIndex(log.notary(), 1)).toBeNull()
  expect(running.signed).toHaveLength(1)
  log.script.afterPull = (reply) => reply
  expect(await waiting).toMatchObject({ index: 1 })
})

it('the committer stores nothing of an enclave of another chain', async () => {
  const stranger = await createScriptedLog({ ...TEST_DOMAIN, chainId: 1 })
  const other = runCommitter(database, stranger)
  others.push(other)
  stranger.seal()
  await expect.poll(() => other.complaints.length).toBeGreaterThan(0)
  expect(other.complaints[0]?.error).toMatch(
    /^BatchRefused: expected an enclave for contract .* on chain 31337/,
  )
  expect(other.signed).toEqual([])
})

it('the committer tries smaller batches when the database fails again and again', async () => {
  await sealAndWait(1)
  const sizes: number[] = []
  running.script.beforeCommit = (commit) => {
    sizes.push(commit.records.length)
    if (commit.records.length > 30) throw new Error('out of memory')
  }
  log.setDown(true)
  const waiting = Array.from({ length: 100 }, () => waitFor(log.seal()))
  log.setDown(false)
  await Promise.all(waiting)
  expect(sizes.some((size) => size > 30)).toBe(true)
  expect(running.committer.status().records).toBe(101)
})

it('the committer gives a stored record later when the database fails while it is looked up', async () => {
  const notice = log.seal()
  await waitFor(notice)
  const findByIndex = running.records.findByIndex
  let failures = 2
  running.records.findByIndex = (notary, index) =>
    failures-- > 0 ? Promise.reject(new Error('connection refused')) : findByIndex(notary, index)
  expect(await waitFor(notice)).toMatchObject({ index: 0 })
})

it('a caller of a replaced enclave gets its record although the first reads after its anchor fail', async () => {
  const other = runCommitter(database, log, { anchorIntervalMs: 10_000 })
  others.push(other)
  const { record } = await waitForAnchor(other)
  const former = log.notary()
  await log.restart()
  await expect.poll(() => other.committer.status().notary).toBe(log.notary())
  failReads(other, 2)
  await other.anchors.flush(former)
  expect(await record).toMatchObject({ notary: former, index: 0 })
})

it('a caller who asks after a published commit gets its record although the first read fails', async () => {
  await running.committer.stop()
  let publish: Parameters<CommitTurns['join']>[1]['onPublished'] = () => {}
  const turns: CommitTurns = {
    ...ALWAYS_OURS,
    join(notary, hooks) {
      publish = hooks.onPublished
      return ALWAYS_OURS.join(notary, hooks)
    },
  }
  const other = runCommitter(database, log, { turns })
  others.push(other)
  const { notary, index } = log.seal()
  await expect.poll(() => other.committer.status().records).toBe(1)
  publish({ size: 1, isByHolder: true, head: null })
  failReads(other, 1)
  expect(await other.committer.waitFor(notary, index, never)).toMatchObject({ index: 0 })
})

/** Gives a caller's wait for a leaf that is committed and not anchored. */
async function waitForAnchor({ committer }: RunningCommitter) {
  await running.committer.stop()
  const { notary, index } = log.seal()
  const record = committer.waitFor(notary, index, never)
  await expect.poll(() => committer.status().size).toBe(1)
  return { record }
}

function failReads({ records }: RunningCommitter, times: number) {
  const { findByIndexes } = records
  let left = times
  records.findByIndexes = (notary, indexes) =>
    left-- > 0
      ? Promise.reject(new Error('Connection terminated unexpectedly'))
      : findByIndexes(notary, indexes)
}

it('a committer that stops commits what is sealed, and acknowledges it', async () => {
  await sealAndWait(1)
  let left = 40
  running.script.beforeCommit = () => {
    if (left-- > 0) log.seal()
  }
  log.seal()
  await running.committer.stop()
  expect(log.acknowledged()).toBe(log.size())
  expect(log.size()).toBe(42)
  expect(phase()).toBe('stopped')
})

it('a committer that stops rejects who waits for what never comes, and whoever asks later', async () => {
  await sealAndWait(1)
  const waiting = waitFor({ notary: log.notary(), index: 99, outcome: 'complete' })
  const rejected = expect(waiting).rejects.toThrow(CommitError)
  await running.committer.stop()
  await rejected
  await expect(
    waitFor({ notary: log.notary(), index: 0, outcome: 'complete' }),
  ).rejects.toMatchObject({
    code: 'stopped',
  })
  running.committer.start()
  expect(phase()).toBe('stopped')
})

it('a committer that stops does not wait for an enclave that is down', async () => {
  await sealAndWait(1)
  log.setDown(true)
  await expect.poll(phase).toBe('failing')
  const startedAt = performance.now()
  await running.committer.stop()
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
})

function otherAddress(): string {
  return `0x${crypto.randomUUID().replaceAll('-', '').padEnd(40, '0')}`
}
