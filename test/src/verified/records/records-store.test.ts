import { createHash, randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyInclusion } from '#attestation/merkle/verify.ts'
import type { Database } from '#src/storage/database.ts'
import {
  type CommitsStore,
  createCommitsStore,
  type NewRecord,
} from '#src/verified/commits/commits-store.ts'
import {
  createDocumentReader,
  createRecordsStore,
  DOCUMENTS_CACHED_MAX,
  FILTERED_RECORDS_MAX,
  NO_FILTERS,
  type RecordFilters,
  type RecordsStore,
  type StoredRecord,
} from '#src/verified/records/records-store.ts'
import { type DatabaseSource, startDatabases } from '../../../support/databases.ts'
import {
  buildCommit,
  CREATED_AT,
  makeLog,
  OPENING,
  openLog,
  storeCommits,
} from '../commits/build-commit.ts'

describe('records store', () => {
  let source: DatabaseSource
  let database: Database
  let commits: CommitsStore
  let records: RecordsStore

  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
    commits = createCommitsStore(database)
    records = createRecordsStore(database, OPENING.domain.chainId)
  }, 60_000)
  afterAll(() => source.stop())

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

  it('the store of records finds nothing that is not there', async () => {
    const log = makeLog()
    await storeCommits(commits, log, [[{}]])
    expect(await records.findByIndex(log.notary, 1)).toBeNull()
    expect(await records.findByIndex(makeLog().notary, 0)).toBeNull()
    expect(await records.findByHash('ab'.repeat(32), { accountId: null })).toBeNull()
  })

  it('the first of several records with the same hash is found', async () => {
    const hash = randomBytes(32).toString('hex')
    const log = makeLog()
    const { stored } = await storeCommits(commits, log, [
      [{}, { hash }],
      [{ hash }, { hash }],
    ])
    const found = await records.findByHash(hash, { accountId: null })
    expect(found?.id).toBe(stored[0]?.records[1]?.id)
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
    expect((await records.findByHash(hash, { accountId: mine }))?.id).toBe(
      stored[0]?.records[1]?.id,
    )
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

  it('a page ends with the id of the last record while there is more, and with null when there is none', async () => {
    const accountId = crypto.randomUUID()
    const stored = await storeFor(accountId, 3)
    expect(await records.list({ accountId, limit: 2, cursor: null })).toMatchObject({
      cursor: stored[1]?.id,
    })
    expect(await records.list({ accountId, limit: 3, cursor: null })).toMatchObject({
      cursor: null,
    })
    expect(await records.list({ accountId, limit: 5, cursor: stored[0]?.id ?? '' })).toEqual({
      records: [],
      cursor: null,
      isCut: false,
    })
  })

  it('pages neither repeat nor skip a record while others are added between them', async () => {
    const accountId = crypto.randomUUID()
    const before = await storeFor(accountId, 20)
    const pages = await walk(accountId, 3, async () => {
      await storeFor(accountId, 2)
      await storeFor(crypto.randomUUID(), 2)
    })
    expect(pages.flat().map(({ id }) => id)).toEqual(before.map(({ id }) => id).toReversed())
  })

  it('an account is shown its own records only, and everybody everything', async () => {
    const [mine, theirs] = [crypto.randomUUID(), crypto.randomUUID()]
    const { stored } = await storeCommits(commits, makeLog(), [
      [{ accountId: mine }, { accountId: theirs }, { accountId: null }, { accountId: mine }],
    ])
    const ids = stored[0]?.records.map(({ id }) => id) ?? []
    const own = await records.list({ accountId: mine, limit: 10, cursor: null })
    expect(own).toMatchObject({ records: [{ id: ids[3] }, { id: ids[0] }] })
    const all = await records.list({ accountId: null, limit: 4, cursor: null })
    expect(all).toMatchObject({ records: ids.toReversed().map((id) => ({ id })) })
  })

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
    const receipt = (requested: string, encrypted?: boolean) =>
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

  it('a page with filters looks at so many records, and the next goes on where it ended', async () => {
    const accountId = crypto.randomUUID()
    const { stored } = await storeCommits(commits, makeLog(), [
      [{ accountId, outcome: 'upstream_error' }, { accountId }],
    ])
    const [fitting, other] = stored[0]?.records ?? []
    // As many again as are looked at, none of which fits.
    await sql`
      insert into records (id, log_id, index, account_id, hash, receipt, signature, document_digest, outcome, created_at)
      select gen_random_uuid(), log_id, index + n, account_id, hash, receipt, signature, document_digest, outcome, created_at
      from records, generate_series(1, ${FILTERED_RECORDS_MAX}::integer) n where id = ${other?.id}`.execute(
      database.queries,
    )
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
    const addOthers = (from: number, count: number) =>
      sql`
      insert into records (id, log_id, index, account_id, hash, receipt, signature, document_digest, outcome, created_at)
      select gen_random_uuid(), log_id, index + n, account_id, hash, receipt, signature, document_digest, outcome, created_at
      from records, generate_series(${from}::integer, ${from + count - 1}::integer) n where id = ${other?.id}`.execute(
        database.queries,
      )
    // The first page examines this many records, and the last of them fits.
    await addOthers(1, FILTERED_RECORDS_MAX - 2)
    let hasGrown = false
    const queries = database.queries.withPlugin({
      transformQuery: ({ node }) => node,
      async transformResult({ result }) {
        if (!hasGrown && result.rows.some(({ id }) => id === fitting?.id)) {
          hasGrown = true
          await addOthers(FILTERED_RECORDS_MAX, 3)
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

  it('the store of records takes a cursor in upper case', async () => {
    const accountId = crypto.randomUUID()
    const stored = await storeFor(accountId, 2)
    const page = await records.list({
      accountId,
      limit: 1,
      cursor: stored[1]?.id.toUpperCase() ?? '',
    })
    expect(page).toMatchObject({ records: [{ id: stored[0]?.id }] })
  })

  it('an account without records has an empty page', async () => {
    const page = await records.list({ accountId: crypto.randomUUID(), limit: 10, cursor: null })
    expect(page).toEqual({ records: [], cursor: null, isCut: false })
  })

  it('the seconds at which the enclave finished are kept', async () => {
    const log = makeLog()
    await storeCommits(commits, log, [[{ createdAt: 4_102_444_800 }, {}]])
    expect(await records.findByIndex(log.notary, 0)).toMatchObject({ createdAt: 4_102_444_800 })
    expect(await records.findByIndex(log.notary, 1)).toMatchObject({ createdAt: CREATED_AT + 1 })
  })
})

describe('reader of attestation documents', () => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

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

  it('the reader of documents gives them in base64, however often they are asked for', async () => {
    const documents = await storeDocuments(3)
    const read = createDocumentReader(database.queries)
    const digests = documents.map(digestOf)
    const lookup = await read([...digests, ...digests])
    expect(digests.map(lookup)).toEqual(documents.map((document) => document.toString('base64')))
  })

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
})

function digestOf(bytes: Uint8Array): Uint8Array {
  return createHash('sha256').update(bytes).digest()
}
