import { encodeBase64, encodeHex } from '../../attestation/bytes.ts'
import type { Queries } from '../storage/tables.ts'

/** Documents kept in memory, newest use last; one serves all records of some hours. */
export const DOCUMENTS_CACHED_MAX = 64

/** Gives the standard base64 of a document that was read. Throws when it was not asked for, or is not stored. */
export type DocumentLookup = (digest: Uint8Array) => string

/** Gives a reader of attestation documents by digest, which never change: those read lately come from memory. */
export function createDocumentReader(
  queries: Queries,
): (digests: readonly Uint8Array[]) => Promise<DocumentLookup> {
  const cache = new Map<string, string>()

  return async (digests) => {
    const found = new Map<string, string>()
    const missing = new Map<string, Uint8Array>()
    for (const digest of digests) {
      const key = encodeHex(digest)
      const cached = cache.get(key)
      if (cached === undefined) missing.set(key, digest)
      else found.set(key, cached)
    }
    if (missing.size > 0) {
      const rows = await queries
        .selectFrom('attestation_documents')
        .select(['digest', 'document'])
        .where('digest', 'in', [...missing.values()])
        .execute()
      for (const row of rows) found.set(encodeHex(row.digest), encodeBase64(row.document))
    }
    for (const [key, text] of found) remember(cache, key, text)
    return (digest) => {
      const text = found.get(encodeHex(digest))
      if (text === undefined) throw new Error(`expected a stored attestation document ${encodeHex(digest)}`)
      return text
    }
  }
}

function remember(cache: Map<string, string>, key: string, text: string): void {
  cache.delete(key)
  cache.set(key, text)
  const [oldest] = cache.keys()
  if (cache.size > DOCUMENTS_CACHED_MAX && oldest !== undefined) cache.delete(oldest)
}
