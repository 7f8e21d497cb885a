import { randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createIdempotencyStore } from '#src/accounts/idempotency-store.ts'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { type ContentKey, createContentCipher } from '#src/storage/content-cipher.ts'
import { parseContentKeys } from '#src/storage/content-keys.ts'
import { admitContentKeys } from '#src/storage/content-keys-store.ts'
import type { Database } from '#src/storage/database.ts'
import { createCommitsStore, type NewRecord } from '#src/verified/commits/commits-store.ts'
import { createErasureSweeper } from '#src/verified/records/erasures.ts'
import { createErasuresStore } from '#src/verified/records/erasures-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { createContentOperations } from '#src/verified/records/reencryption-store.ts'
import { useDatabases } from '../../../support/databases.ts'
import { dumpTables, holdsText } from '../../../support/dump-tables.ts'
import { makeLog, OPENING, storeCommits } from '../commits/build-commit.ts'

const [OLD, NEW] = [makeKey(), makeKey()]
const PROMPT = 'planted prompt 7f3a'
const ANSWER = 'planted answer 91c2'
const PLANTED = { request: `{"q":"${PROMPT}"}`, response: `{"a":"${ANSWER}"}` }
const DAY = 86_400
const NOW = 1_795_219_200

function makeKey(): ContentKey {
  const keys = parseContentKeys(randomBytes(32).toString('hex'))
  if (typeof keys === 'string') throw new Error(keys)
  return keys[0]
}

const source = await useDatabases()
const plain = await source.open()

/** The same database, as a gateway with these keys sees it. */
const withKeys = (...keys: readonly [ContentKey, ...ContentKey[]]): Database => ({
  ...plain,
  content: createContentCipher(keys),
})

async function store(database: Database, records: readonly Partial<NewRecord>[]) {
  const { stored } = await storeCommits(createCommitsStore(database), makeLog(), [records])
  return stored.flatMap((commit) => commit.records)
}

async function storeOne(database: Database, record: Partial<NewRecord> = {}): Promise<NewRecord> {
  const [stored] = await store(database, [{ ...PLANTED, ...record }])
  return stored ?? expect.unreachable()
}

const anybody = { accountId: null }
const find = (database: Database, { hash }: Pick<NewRecord, 'hash'>) =>
  createRecordsStore(database, OPENING.domain.chainId).findByHash(hash, anybody)

const dump = () => dumpTables(plain)

/** An account that is named as its id. */
async function makeAccount(): Promise<string> {
  const id = crypto.randomUUID()
  await createKeysStore(plain).openAccount({ id, name: id, createdAt: NOW })
  return id
}

const callOf = (accountId: string, key = 'k') => ({
  accountId,
  key,
  callId: crypto.randomUUID(),
  requestHash: randomBytes(32),
  processId: crypto.randomUUID(),
  notary: null,
})

it('stored content is in no table when it is encrypted, and is given back as it was', async () => {
  const sealing = withKeys(OLD)
  const record = await storeOne(sealing, {
    request: '{"q":"secret prompt 4d1e"}',
    response: '{"a":"secret answer 08bb"}',
  })
  const answers = createIdempotencyStore(sealing)
  const call = callOf(crypto.randomUUID())
  await answers.claim(call, DAY)
  await answers.keep(call, 'secret kept answer 5a77')
  const all = await dump()
  for (const secret of ['secret prompt 4d1e', 'secret answer 08bb', 'secret kept answer 5a77'])
    expect(holdsText(all, secret)).toBe(false)
  expect(all).toContain(record.hash)
  const found = await find(sealing, record)
  expect([found?.request, found?.response]).toEqual([record.request, record.response])
  expect(await answers.claim(call, DAY)).toMatchObject({ answer: 'secret kept answer 5a77' })
  await expect(createIdempotencyStore(plain).claim(call, DAY)).rejects.toMatchObject({
    code: 'content_key_missing',
  })
})

it('stored content is told to be unreadable, with the rest of the record, without its key or in another row', async () => {
  const [one, other] = await store(withKeys(OLD), [PLANTED, PLANTED])
  if (one === undefined || other === undefined) return expect.unreachable()
  for (const database of [plain, withKeys(NEW)]) {
    const { hash, receipt, signature } = one
    expect(await find(database, one)).toMatchObject({
      hash,
      receipt,
      signature,
      request: null,
      response: null,
      withheld: { kind: 'unavailable', code: 'content_key_missing' },
    })
  }
  await sql`
    update records set content = (select content from records where id = ${other.id})
    where id = ${one.id}`.execute(plain.queries)
  const unreadable = { withheld: { kind: 'unavailable', code: 'content_unreadable' } }
  expect(await find(withKeys(OLD), one)).toMatchObject(unreadable)
  await sql`
    update records set content = substring(content from 1 for 30) where id = ${other.id}`.execute(
    plain.queries,
  )
  expect(await find(withKeys(OLD), other)).toMatchObject(unreadable)
})

it('content may not stand in the clear beside itself, or come back once it was erased', async () => {
  const record = await storeOne(withKeys(OLD))
  const update = (values: string) =>
    sql`update records set ${sql.raw(values)} where id = ${record.id}`.execute(plain.queries)
  await expect(update(`request = '{}', response = '{}'`)).rejects.toThrow('records_content_once')
  await createErasuresStore(plain).eraseRecords(
    { hash: record.hash, accountId: null },
    { by: 'operator', reason: 'asked' },
  )
  await expect(update(`request = '{}', response = '{}'`)).rejects.toThrow('records_erased')
  await expect(update(`content = '\\x01'`)).rejects.toThrow('records_erased')
})

it('stored content under a new key is in all rows, also when its encryption was broken off', async () => {
  const [clear, old] = [await storeOne(plain), await storeOne(withKeys(OLD))]
  const others = await store(plain, Array(12).fill(PLANTED))
  const rotating = withKeys(OLD, NEW)
  const first = await createContentOperations(rotating).encrypt(0)
  expect(first).toMatchObject({ encrypted: expect.any(Number) })
  // Begun again, and by two at once, while some are erased.
  await createErasuresStore(plain).eraseRecords(
    { hash: others[7]?.hash ?? '', accountId: null },
    { by: 'operator', reason: 'meanwhile' },
  )
  await sql`
    update records set content = null, request = ${PLANTED.request}, response = ${PLANTED.response}
    where id = ${clear.id}`.execute(plain.queries)
  await Promise.all([encryptAll(rotating), encryptAll(rotating)])
  for (const record of [clear, old, ...others.filter((_, at) => at !== 7)]) {
    const found = await find(withKeys(NEW), record)
    expect([found?.request, found?.response]).toEqual([PLANTED.request, PLANTED.response])
  }
  expect(await find(withKeys(NEW), others[7] ?? expect.unreachable())).toMatchObject({
    withheld: { kind: 'erased', reason: 'meanwhile' },
  })
  expect(await dump()).not.toContain(PROMPT)
  expect(await encryptAll(rotating)).toMatchObject({ encrypted: 0 })
})

it('stored content under a new key stays what it is where the old key is missing, and that is counted', async () => {
  const lost = makeKey()
  const record = await storeOne(withKeys(lost))
  expect((await encryptAll(withKeys(OLD, NEW))).unreadable).toBeGreaterThan(0)
  expect((await find(withKeys(lost), record))?.request).toBe(PLANTED.request)
})

it('stored content under a new key is in all rows, also when content is erased while a batch is chosen', async () => {
  const own = await source.open()
  const old = { ...own, content: createContentCipher([OLD]) }
  const [first, second, third] = await store(old, [PLANTED, PLANTED, PLANTED])
  // A batch ends at 16 MiB, so it has only these two.
  await sql`alter table records alter content set storage external`.execute(own.queries)
  await sql`
    update records set content = content || convert_to(repeat('y', 9437184), 'UTF8')
    where id in (${first?.id}, ${second?.id})`.execute(own.queries)
  let isChosen = false
  const rotating = {
    ...own,
    content: createContentCipher([OLD, NEW]),
    queries: own.queries.withPlugin({
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => {
        if (isChosen) return result
        isChosen = result.rows.some((row) => 'content' in row)
        if (isChosen)
          await createErasuresStore(own).eraseRecords(
            { hash: first?.hash ?? '', accountId: null },
            { by: 'operator', reason: 'meanwhile' },
          )
        return result
      },
    }),
  }
  await encryptAll(rotating)
  expect(isChosen).toBe(true)
  const found = await find(
    { ...own, content: createContentCipher([NEW]) },
    third ?? expect.unreachable(),
  )
  expect(found?.withheld).toBeUndefined()
})

async function encryptAll(database: Database) {
  const { encrypt } = createContentOperations(database)
  const counts = { encrypted: 0, unreadable: 0 }
  for (let position: number | null = 0; position !== null; ) {
    const batch = await encrypt(position)
    if (batch === 'no_key') return expect.unreachable()
    counts.encrypted += batch.encrypted
    counts.unreadable += batch.unreadable
    position = batch.next
  }
  return counts
}

it('stored content that is encrypted lets no gateway start without any key, and warns of missing ones', async () => {
  const warnings: unknown[] = []
  const log = { warn: (fields: object) => void warnings.push(fields) }
  await sql`delete from content_keys`.execute(plain.queries)
  await admitContentKeys(plain, log)
  await admitContentKeys(withKeys(OLD), log)
  await expect(admitContentKeys(plain, log)).rejects.toThrow('CONTENT_KEY_FILE')
  expect(warnings).toEqual([])
  await admitContentKeys(withKeys(NEW), log)
  expect(warnings).toEqual([{ keys: [OLD.id] }])
  const { retire, keys } = createContentOperations(withKeys(OLD, NEW))
  expect(await retire()).toBe('retired')
  const byId = new Map((await keys()).map((key) => [key.id, key]))
  expect(byId.get(OLD.id)).toMatchObject({ retired_at: expect.any(Number), is_newest: false })
  expect(byId.get(NEW.id)).toMatchObject({ retired_at: null, is_known: true, is_newest: true })
  await admitContentKeys(withKeys(NEW), log)
  expect(warnings).toHaveLength(1)
})

const order = { by: 'operator', reason: 'asked for' } as const
const erasures = () => createErasuresStore(plain, () => NOW)
const sweep = (retentionDays: number | null = null) =>
  createErasureSweeper({
    store: erasures(),
    retentionDays,
    log: { info: () => undefined, error: () => expect.unreachable() },
  }).sweep(new AbortController().signal)
const gone = { withheld: { kind: 'erased', ...order, at: NOW } }

/** Whether the row itself holds content. */
async function isStored({ id }: NewRecord): Promise<boolean> {
  const { rows } = await sql<{ held: boolean }>`
    select request is not null or response is not null or content is not null as held
    from records where id = ${id}`.execute(plain.queries)
  return rows[0]?.held ?? expect.unreachable()
}

it('erased content by hash is gone from all records of the hash, and of those of one account alone', async () => {
  const [mine, theirs] = [crypto.randomUUID(), crypto.randomUUID()]
  const hash = randomBytes(32).toString('hex')
  const same = [mine, mine, theirs].map((accountId) => ({ ...PLANTED, hash, accountId }))
  const [first, second, third] = await store(withKeys(OLD), same)
  const of = (accountId: string | null) => erasures().eraseRecords({ hash, accountId }, order)
  expect(await of(crypto.randomUUID())).toEqual({ found: 0, erased: 0 })
  expect(await of(mine)).toEqual({ found: 2, erased: 2 })
  expect(await of(null)).toEqual({ found: 3, erased: 1 })
  expect(await of(null)).toEqual({ found: 3, erased: 0 })
  for (const record of [first, second, third])
    expect(await isStored(record ?? expect.unreachable())).toBe(false)
  const { receipt, signature } = first ?? expect.unreachable()
  expect(await find(plain, { hash })).toMatchObject({ ...gone, hash, receipt, signature })
})

it('erased content of an account is given to nobody at once, and is then removed; what comes later stays', async () => {
  const [account, other] = [await makeAccount(), await makeAccount()]
  const at = (createdAt: number, accountId = account) => ({ accountId, createdAt })
  const before = await storeOne(plain, at(NOW - 10))
  const ahead = await storeOne(plain, at(NOW + 30))
  const theirs = await storeOne(plain, at(NOW - 10, other))
  expect(await erasures().eraseAccount('nobody', order)).toBeNull()
  expect(await erasures().eraseAccount(account, order)).toEqual({ accountId: account })
  // Its enclave finished it before, and it is committed only now.
  const late = await storeOne(withKeys(OLD), at(NOW - 1))
  for (const record of [before, ahead, late]) {
    expect(await find(withKeys(OLD), record)).toMatchObject(gone)
    expect(await isStored(record)).toBe(true)
  }
  const after = await storeOne(plain, at(NOW + 31))
  expect(await sweep()).toBe(3)
  for (const record of [before, ahead, late]) {
    expect(await isStored(record)).toBe(false)
    expect(await find(withKeys(OLD), record)).toMatchObject(gone)
  }
  for (const record of [after, theirs])
    expect((await find(plain, record))?.request).toBe(PLANTED.request)
  const page = await createRecordsStore(plain, OPENING.domain.chainId).list({
    accountId: account,
    limit: 10,
    cursor: null,
  })
  if (page === 'unknown_cursor') return expect.unreachable()
  const kinds = page.records.map(({ withheld }) => withheld?.kind ?? 'kept')
  expect(kinds).toEqual(['kept', 'erased', 'erased', 'erased'])
})

it('erased content of an account goes from the answers that are kept for its keys, also those of calls under way', async () => {
  const account = await makeAccount()
  const answers = createIdempotencyStore(withKeys(OLD), () => NOW)
  const [answered, running] = [callOf(account, 'answered'), callOf(account, 'running')]
  for (const one of [answered, running]) await answers.claim(one, DAY)
  await answers.keep(answered, 'kept')
  await erasures().eraseAccount(account, order)
  await answers.keep(running, 'late')
  await sweep()
  expect(await answers.claim(running, DAY)).toMatchObject({ answer: null })
  expect(await answers.claim(answered, DAY)).toBe('claimed')
})

it('erased content of an account is given to nobody, whatever is committed at the same time', async () => {
  const account = await makeAccount()
  let isErased = false
  const storing = Array.from({ length: 4 }, async () => {
    const stored: NewRecord[] = []
    for (let round = 0; round < 4 || !isErased; round++)
      stored.push(await storeOne(withKeys(OLD), { accountId: account, createdAt: NOW - 5 }))
    return stored
  })
  await erasures().eraseAccount(account, order)
  isErased = true
  const all = (await Promise.all(storing)).flat()
  for (const record of all) expect(await find(withKeys(OLD), record)).toMatchObject(gone)
  expect(await sweep()).toBe(all.length)
  for (const record of all) expect(await isStored(record)).toBe(false)
})

it('content older than the days of its account, or else of the gateway, is erased by retention', async () => {
  const [standard, longer, shorter] = await Promise.all([1, 2, 3].map(makeAccount))
  const nobodys = crypto.randomUUID()
  await erasures().setRetention(longer ?? '', 100)
  await erasures().setRetention(shorter ?? '', 2)
  expect(await erasures().setRetention('nobody', 2)).toBe(false)
  const limits = [
    [standard, 30],
    [longer, 100],
    [shorter, 2],
    [null, 30],
    [nobodys, 30],
  ] as const
  const storeAged = (days: number, accountId: string | null = null) =>
    storeOne(plain, { accountId, createdAt: NOW - days * DAY })
  const kept = await Promise.all(limits.map(([account, days]) => storeAged(days - 1, account)))
  const expired = await Promise.all(limits.map(([account, days]) => storeAged(days, account)))
  await sweep(30)
  for (const record of kept) expect((await find(plain, record))?.withheld).toBeUndefined()
  const reasons = await Promise.all(
    expired.map(async (record) => (await find(plain, record))?.withheld),
  )
  expect(reasons).toEqual(
    limits.map(([, days]) => ({
      kind: 'erased',
      at: NOW,
      by: 'retention',
      reason: `kept for ${days} days`,
    })),
  )
  expect(await sweep(30)).toBe(0)
  await erasures().setRetention(shorter ?? '', null)
  await erasures().setRetention(longer ?? '', null)
})

it('erased content is erased in batches, whatever number of accounts there are, by one process at a time', async () => {
  const accounts = await Promise.all(Array.from({ length: 7 }, makeAccount))
  for (const accountId of accounts) await store(plain, Array(5).fill({ accountId, createdAt: NOW }))
  for (const account of accounts) await erasures().eraseAccount(account, order)
  const due: string[] = []
  let after: string | null = null
  do {
    const page: Awaited<ReturnType<ReturnType<typeof erasures>['listDue']>> =
      await erasures().listDue({ after, limit: 3, retentionDays: null })
    due.push(...page.due.map(({ accountId }) => accountId ?? ''))
    after = page.cursor
  } while (after !== null)
  for (const account of accounts) expect(due.filter((one) => one === account)).toHaveLength(1)
  const [first = ''] = accounts
  const one = (await erasures().findDue(first)) ?? expect.unreachable()
  expect([await erasures().eraseDue(one, 3), await erasures().eraseDue(one, 3)]).toEqual([3, 2])
  // Of 35, 5 are erased; each of the others counts at one of them.
  const counts = [...(await Promise.all([sweep(), sweep()])), await sweep()]
  expect(counts.reduce((sum, count) => sum + count)).toBe(30)
  for (const account of accounts) expect(await erasures().findDue(account)).toBeNull()
})
