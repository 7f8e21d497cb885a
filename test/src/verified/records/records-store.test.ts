import { createHash, randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyInclusion } from '#attestation/merkle/verify.ts'
import { createCommitsStore, type NewRecord } from '#src/verified/commits/commits-store.ts'
import {
  createDocumentReader,
  createRecordsStore,
  DOCUMENTS_CACHED_MAX,
  FILTERED_RECORDS_MAX,
  NO_FILTERS,
  type RecordFilters,
  type StoredRecord,
} from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import { buildCommit, makeLog, OPENING, openLog, storeCommits } from '../commits/build-commit.ts'

const database = await useDatabase()
const commits = createCommitsStore(database)
const records = createRecordsStore(database, OPENING.domain.chainId)

/**
 * Stores so many records of an account, in commits of `batch`, and gives them in the order of
 * their leaves.
 */
async function storeFor(
  accountId: string,
  count: number,
  batch = 7,
): Promise<readonly NewRecord[]> {
  const all = Array.from({ length: count }, () => ({ accountId }))
  const batches = Array.from({ length: Math.ceil(count / batch) }, (_, at) =>
    all.slice(at * batch, at * batch + batch),
  )
  const { stored } = await storeCommits(commits, makeLog(), batches)
  return stored.flatMap((commit) => commit.records)
}

async function walk(accountId: string | null, limit: number, onPage = async () => {}) {
  const pages: (readonly StoredRecord[])[] = []
  let cursor: string | null = null
  do {
    const page = await records.list({ accountId, limit, cursor })
    if (page === 'unknown_cursor') throw new Error('expected a page')
    pages.push(page.records)
    cursor = page.cursor
    await onPage()
  } while (cursor !== null)
  return pages
}

it('a database without any record has an empty page, with filters too', async () => {
  for (const filters of [NO_FILTERS, { ...NO_FILTERS, outcome: 'complete' as const }]) {
    const page = await records.list({ accountId: null, limit: 10, cursor: null, filters })
    expect(page).toEqual({ records: [], cursor: null, isCut: false })
  }
})

it('the store of records gives back all that was stored', async () => {
  const log = makeLog()
  const document = randomBytes(500)
  const accountId = crypto.randomUUID()
  const state = await openLog(commits, log)
  const commit = buildCommit({ log, state, nonce: 0, records: [{ accountId }], document })
  await commits.commit(commit)
  const { document: _, ...given } = commit.records[0] ?? expect.unreachable()
  expect(await records.findByIndex(log.notary, 0)).toEqual({
    ...given,
    notary: log.notary,
    publicKey: log.publicKey,
    txHash: commit.anchor.hash,
    reanchored: [],
    attestation: document.toString('base64'),
    logProof: {
      size: 1,
      root: encodeHex(commit.head.root),
      signature: `0x${encodeHex(commit.head.signature)}`,
      path: [],
      ...OPENING.domain,
    },
  })
})

it('every record has an inclusion path to the head of its own commit', async () => {
  const accountId = crypto.randomUUID()
  const log = makeLog()
  const sizes = [1, 2, 1, 5, 8, 3, 1, 13, 30]
  await storeCommits(
    commits,
    log,
    sizes.map((size) => Array.from({ length: size }, () => ({ accountId }))),
  )
  const found = (await walk(accountId, 25)).flat()
  expect(found).toHaveLength(64)
  for (const { index, receipt, logProof } of found) {
    const { size, root, path } = logProof
    const proof = { leafHash: hashLeaf(encodeUtf8(receipt)), index, path: path.map(decodeHex) }
    expect(verifyInclusion({ ...proof, head: { size, root: decodeHex(root) } })).toEqual({
      index,
      size,
    })
    expect(
      sizes.map((_, at) => sizes.slice(0, at + 1).reduce((sum, each) => sum + each)),
    ).toContain(size)
    expect(size - index).toBeLessThanOrEqual(30)
  }
})

it('the records of a log are listed from a leaf on, everybody’s or one account’s, among other logs', async () => {
  const [one, other] = [crypto.randomUUID(), crypto.randomUUID()]
  const owners = [one, other, other, one, other, one, one]
  const log = makeLog()
  await storeFor(one, 2)
  const { state } = await storeCommits(commits, log, [
    owners.slice(0, 3).map((accountId) => ({ accountId })),
    owners.slice(3).map((accountId) => ({ accountId })),
  ])
  await storeFor(one, 2)
  const indexes = async (accountId: string | null, start: number, limit = 10) =>
    (await records.listFrom({ accountId, logId: state.logId, start, limit })).map(
      ({ index }) => index,
    )
  expect(await indexes(null, 0)).toEqual([0, 1, 2, 3, 4, 5, 6])
  expect(await indexes(null, 2, 3)).toEqual([2, 3, 4])
  expect(await indexes(one, 0)).toEqual([0, 3, 5, 6])
  expect(await indexes(one, 1, 2)).toEqual([3, 5])
  expect(await indexes(other, 2)).toEqual([2, 4])
  expect(await indexes(other, 5)).toEqual([])
  expect(await indexes(null, 7)).toEqual([])
  expect(await indexes(one, 7)).toEqual([])
  const [found] = await records.listFrom({
    accountId: one,
    logId: state.logId,
    start: 3,
    limit: 1,
  })
  expect(found).toEqual(await records.findByIndex(log.notary, 3))
})

it('the first record of an account is found when others have the same hash', async () => {
  const hash = randomBytes(32).toString('hex')
  const [mine, theirs] = [crypto.randomUUID(), crypto.randomUUID()]
  const { stored } = await storeCommits(commits, makeLog(), [
    [
      { hash, accountId: theirs },
      { hash, accountId: mine },
    ],
    [{ hash, accountId: mine }],
  ])
  expect((await records.findByHash(hash, { accountId: mine }))?.id).toBe(stored[0]?.records[1]?.id)
  expect(await records.findByHash(hash, { accountId: crypto.randomUUID() })).toBeNull()
})

it.each([1, 7, 20, 100])(
  'an account is paged through, newest first, %i at a time',
  async (limit) => {
    const accountId = crypto.randomUUID()
    const stored = await storeFor(accountId, 20)
    const pages = await walk(accountId, limit)
    expect(pages.flat().map(({ id }) => id)).toEqual(stored.map(({ id }) => id).toReversed())
    expect(pages.map((page) => page.length)).toEqual(
      Array.from({ length: Math.ceil(20 / limit) }, (_, at) => Math.min(limit, 20 - at * limit)),
    )
  },
)

it.each([
  ['of nobody', () => crypto.randomUUID()],
  ['that is no uuid', () => "'; drop table records; --"],
  ['that is empty', () => ''],
  ['of the nil uuid', () => '00000000-0000-0000-0000-000000000000'],
])('a cursor %s is not known', async (_, makeCursor) => {
  expect(await records.list({ accountId: null, limit: 10, cursor: makeCursor() })).toBe(
    'unknown_cursor',
  )
})

it('a page gives the records that fit, newest first', async () => {
  const accountId = crypto.randomUUID()
  const receipt = (requested: string, encrypted = false) =>
    JSON.stringify({
      model: { requested, returned: 'b' },
      provider: { name: `of ${requested}` },
      encrypted,
    })
  const { stored } = await storeCommits(commits, makeLog(), [
    [
      { accountId, receipt: receipt('a'), createdAt: 10 },
      { accountId, receipt: receipt('c', true), createdAt: 20, outcome: 'upstream_error' },
      { accountId, receipt: receipt("a' or true --", false), createdAt: 30 },
    ],
  ])
  const ids = stored[0]?.records.map(({ id }) => id) ?? []
  const found = async (filters: Partial<RecordFilters>) => {
    const query = { accountId, limit: 10, cursor: null, filters: { ...NO_FILTERS, ...filters } }
    const page = await records.list(query)
    if (page === 'unknown_cursor') throw new Error('expected a page')
    return [...page.records.map(({ id }) => ids.indexOf(id)), page.cursor]
  }
  expect(await found({ model: 'a' })).toEqual([0, null])
  expect(await found({ model: 'b' })).toEqual([2, 1, 0, null])
  expect(await found({ model: "a' or true --" })).toEqual([2, null])
  expect(await found({ provider: 'of a' })).toEqual([0, null])
  expect(await found({ provider: 'of' })).toEqual([null])
  expect(await found({ outcome: 'upstream_error' })).toEqual([1, null])
  expect(await found({ isEncrypted: false })).toEqual([2, 0, null])
  expect(await found({ isEncrypted: true, model: 'b' })).toEqual([1, null])
  expect(await found({ since: 20, until: 30 })).toEqual([1, null])
})

/** Adds records of the same log, so many leaves later and on. */
const addLike = (record: NewRecord | undefined, from: number, count: number) =>
  sql`
    insert into records (id, log_id, index, account_id, hash, receipt, signature, document_digest, outcome, created_at)
    select gen_random_uuid(), log_id, index + n, account_id, hash, receipt, signature, document_digest, outcome, created_at
    from records, generate_series(${from}::integer, ${from + count - 1}::integer) n where id = ${record?.id}`.execute(
    database.queries,
  )

it('a page with filters looks at so many records, and the next goes on where it ended', async () => {
  const accountId = crypto.randomUUID()
  const { stored } = await storeCommits(commits, makeLog(), [
    [{ accountId, outcome: 'upstream_error' }, { accountId }],
  ])
  const [fitting, other] = stored[0]?.records ?? []
  // As many again as are looked at, none of which fits.
  await addLike(other, 1, FILTERED_RECORDS_MAX)
  const filters = { ...NO_FILTERS, outcome: 'upstream_error' as const }
  const first = await records.list({ accountId, limit: 5, cursor: null, filters })
  if (first === 'unknown_cursor') throw new Error('expected a page')
  expect([first.records.length, first.isCut]).toEqual([0, true])
  const second = await records.list({ accountId, limit: 5, cursor: first.cursor, filters })
  expect(second).toMatchObject({ records: [{ id: fitting?.id }], cursor: null, isCut: false })
})

it('pages with filters repeat no record that is committed while the first page is read', async () => {
  const accountId = crypto.randomUUID()
  const { stored } = await storeCommits(commits, makeLog(), [
    [{ accountId, outcome: 'upstream_error' }, { accountId }],
  ])
  const [fitting, other] = stored[0]?.records ?? []
  // The first page examines this many records, and the last of them fits.
  await addLike(other, 1, FILTERED_RECORDS_MAX - 2)
  let hasGrown = false
  const queries = database.queries.withPlugin({
    transformQuery: ({ node }) => node,
    async transformResult({ result }) {
      if (!hasGrown && result.rows.some(({ id }) => id === fitting?.id)) {
        hasGrown = true
        await addLike(other, FILTERED_RECORDS_MAX, 3)
      }
      return result
    },
  })
  const growing = createRecordsStore({ ...database, queries }, OPENING.domain.chainId)
  const filters = { ...NO_FILTERS, outcome: 'upstream_error' as const }
  const first = await growing.list({ accountId, limit: 5, cursor: null, filters })
  if (first === 'unknown_cursor') throw new Error('expected a page')
  expect(first).toMatchObject({ records: [{ id: fitting?.id }], cursor: fitting?.id })
  const second = await growing.list({ accountId, limit: 5, cursor: first.cursor, filters })
  expect(second).toMatchObject({ records: [], cursor: null })
  expect(hasGrown).toBe(true)
})

it("another account's record is not known as a cursor, so that ids tell nothing", async () => {
  const [theirs] = await storeFor(crypto.randomUUID(), 1)
  const cursor = theirs?.id ?? ''
  expect(await records.list({ accountId: crypto.randomUUID(), limit: 10, cursor })).toBe(
    'unknown_cursor',
  )
  expect(await records.list({ accountId: null, limit: 10, cursor })).not.toBe('unknown_cursor')
})

async function storeDocuments(count: number) {
  const documents = Array.from({ length: count }, () => randomBytes(40))
  const rows = documents.map((document) => ({
    digest: digestOf(document),
    document,
    first_seen_at: 1,
  }))
  await database.queries.insertInto('attestation_documents').values(rows).execute()
  return documents
}
const deleteAll = () => database.queries.deleteFrom('attestation_documents').execute()

it('the reader of documents reads none twice while it is remembered', async () => {
  const [document = randomBytes(0)] = await storeDocuments(1)
  const read = createDocumentReader(database.queries)
  await read([digestOf(document)])
  await deleteAll()
  const lookup = await read([digestOf(document)])
  expect(lookup(digestOf(document))).toBe(document.toString('base64'))
})

it('the reader of documents forgets the one that was not used for longest', async () => {
  const documents = await storeDocuments(DOCUMENTS_CACHED_MAX + 1)
  const digests = documents.map(digestOf)
  const [first, second] = digests
  if (!first || !second) throw new Error('expected two digests')
  const read = createDocumentReader(database.queries)
  await read(digests.slice(0, DOCUMENTS_CACHED_MAX))
  await read([first])
  await read(digests.slice(DOCUMENTS_CACHED_MAX))
  await deleteAll()
  expect((await read([first]))(first)).toBe(documents[0]?.toString('base64'))
  const lookup = await read([second])
  expect(() => lookup(second)).toThrow(/expected a stored attestation document/)
})

function digestOf(bytes: Uint8Array): Uint8Array {
  return createHash('sha256').update(bytes).digest()
}
