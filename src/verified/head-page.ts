import type { HeadAttestationsStore, StoredHeadAttestation } from './head-attestations-store.ts'
import type { LogsStore, StoredHead } from './logs-store.ts'

/** Attestation documents on a page of heads, bytes: after the head that makes them more, the page ends early. */
export const HEAD_PAGE_BYTES_MAX = 4 * 1024 * 1024

/** Heads in the order of their sizes, and the attestations of the sizes they reach. */
export type HeadPage = {
  readonly heads: readonly StoredHead[]
  readonly attestations: readonly StoredHeadAttestation[]
  /** Size of the last head when there are more, else null; then the attestations are all that there are. */
  readonly cursor: number | null
}

/** What a page is read from. */
export type HeadPageSources = {
  readonly logs: Pick<LogsStore, 'listHeads'>
  readonly headAttestations: Pick<HeadAttestationsStore, 'listHeadAttestations' | 'weighHeadAttestations'>
}

/**
 * Reads at most `limit` heads of more leaves than `cursor` (null: from the first), and fewer when their attestations
 * have more than `bytesMax`; one head is given whatever it has. The documents of what does not fit are not read. A head
 * has few attestations: none is asked for while the leaves of the last are not committed, and two are kept of a size.
 */
export async function readHeadPage(
  { logs, headAttestations }: HeadPageSources,
  query: {
    readonly logId: number
    readonly limit: number
    readonly cursor: number | null
    readonly bytesMax?: number
  },
): Promise<HeadPage> {
  const { logId, limit, cursor: afterSize, bytesMax = HEAD_PAGE_BYTES_MAX } = query
  const found = await logs.listHeads({ logId, afterSize, limit: limit + 1 })
  const given = found.slice(0, limit)
  const throughSize = lastOf(given, { isMore: found.length > limit })
  const weights = await headAttestations.weighHeadAttestations({ logId, afterSize, throughSize })
  const heads = given.slice(0, countFitting(given, { weights, bytesMax }))
  const cursor = lastOf(heads, { isMore: found.length > heads.length })
  const attestations = await headAttestations.listHeadAttestations({ logId, afterSize, throughSize: cursor })
  return { heads, attestations, cursor }
}

function lastOf(heads: readonly StoredHead[], { isMore }: { readonly isMore: boolean }): number | null {
  return isMore ? (heads.at(-1)?.size ?? null) : null
}

/** How many of the heads, at least one, have attestations that fit together. */
function countFitting(
  heads: readonly StoredHead[],
  so: {
    readonly weights: readonly { readonly size: number; readonly bytes: number }[]
    readonly bytesMax: number
  },
): number {
  let bytes = 0
  const tooLarge = so.weights.find((one) => {
    bytes += one.bytes
    return bytes > so.bytesMax
  })
  if (tooLarge === undefined) return heads.length
  return Math.max(1, heads.filter(({ size }) => size < tooLarge.size).length)
}
