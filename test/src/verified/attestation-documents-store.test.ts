import { createHash, randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../../src/storage/database.ts'
import {
  createDocumentReader,
  DOCUMENTS_CACHED_MAX,
} from '../../../src/verified/attestation-documents-store.ts'
import { DATABASE_KINDS, type DatabaseSource, startDatabases } from '../../support/databases.ts'

describe.each(DATABASE_KINDS)('reader of attestation documents on %s', (kind) => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases(kind)
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  async function storeDocuments(count: number) {
    const documents = Array.from({ length: count }, () => randomBytes(40))
    const rows = documents.map((document) => ({ digest: digestOf(document), document, first_seen_at: 1 }))
    await database.queries.insertInto('attestation_documents').values(rows).execute()
    return documents
  }
  const deleteAll = () => database.queries.deleteFrom('attestation_documents').execute()

  it('gives documents in base64, however often they are asked for', async () => {
    const documents = await storeDocuments(3)
    const read = createDocumentReader(database.queries)
    const digests = documents.map(digestOf)
    const lookup = await read([...digests, ...digests])
    expect(digests.map(lookup)).toEqual(documents.map((document) => document.toString('base64')))
  })

  it('reads no document twice while it is remembered', async () => {
    const [document = randomBytes(0)] = await storeDocuments(1)
    const read = createDocumentReader(database.queries)
    await read([digestOf(document)])
    await deleteAll()
    const lookup = await read([digestOf(document)])
    expect(lookup(digestOf(document))).toBe(document.toString('base64'))
  })

  it('forgets the document that was not used for longest', async () => {
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
