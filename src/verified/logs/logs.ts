import { encodeBase64, encodeHex } from '#attestation/bytes.ts'
import { ApiError, ValidationError } from '../../api/errors.ts'
import { fillPage } from '../records/record-text.ts'
import type { RecordsStore } from '../records/records-store.ts'
import { scopeOfViewer, type Viewer } from '../records/viewer.ts'
import type { BootStatementsStore } from './boot-statements-store.ts'
import type { HeadAttestationsStore, StoredHeadAttestation } from './head-attestations-store.ts'
import type { LogsStore, StoredHead, StoredLog } from './logs-store.ts'

export const LEAVES_MAX = 10_000

/**
 * The logs and their proofs, in the form of the API's answers (README.md of src, Logs). Only
 * `records` returns completions. Throws ApiError `not_found` for an unknown notary, and
 * ValidationError for a position beyond the end of the log.
 */
export type Logs = {
  list(query: { readonly limit: number; readonly cursor: string | null }): Promise<object>
  find(notary: string): Promise<object>
  /** What the notary's enclave stated about older logs. */
  bootStatement(notary: string): Promise<object>
  heads(
    notary: string,
    query: { readonly limit: number; readonly cursor: number | null; readonly order: HeadOrder },
  ): Promise<object>
  inclusion(
    notary: string,
    query: { readonly index: number; readonly size: number | null },
  ): Promise<object>
  consistency(
    notary: string,
    query: { readonly from: number; readonly to: number | null },
  ): Promise<object>
  leaves(
    notary: string,
    query: { readonly start: number; readonly end: number | null },
  ): Promise<object>
  /** Returns the records that the viewer may see, from leaf `start` on, as JSON text. */
  records(
    notary: string,
    query: { readonly start: number; readonly limit: number; readonly viewer: Viewer },
  ): Promise<string>
}

/** `isOpen`: every account may see the records of all accounts. */
export function createLogs(options: {
  readonly logs: LogsStore
  readonly headAttestations: HeadPageSources['headAttestations']
  readonly bootStatements: Pick<BootStatementsStore, 'find'>
  readonly records: Pick<RecordsStore, 'listFrom'>
  readonly isOpen: boolean
}): Logs {
  const { logs, headAttestations, bootStatements, records, isOpen } = options

  async function open(notary: string): Promise<StoredLog> {
    const log = await logs.find(notary)
    if (log === null) throw new ApiError('not_found', 'There is no log of this notary')
    return log
  }

  return {
    async list(query) {
      const page = await logs.list(query)
      if (page === 'unknown_cursor')
        throw unfit('cursor', 'Input should be the notary of a log', 'value_error')
      const cursor = page.hasMore ? (page.logs.at(-1)?.notary ?? null) : null
      return { logs: page.logs.map(describeLog), cursor }
    },
    find: async (notary) => describeLog(await open(notary)),
    async bootStatement(notary) {
      await open(notary)
      const stored = await bootStatements.find(notary)
      const statement = stored && {
        heads: JSON.parse(stored.heads),
        created_at: stored.createdAt,
        document: encodeBase64(stored.document),
      }
      return { notary, statement }
    },
    async heads(notary, query) {
      const { logId } = await open(notary)
      const page = await readHeadPage({ logs, headAttestations }, { logId, ...query })
      return {
        notary,
        heads: page.heads.map(describeStoredHead),
        attestations: page.attestations.map(describeAttestation),
        cursor: page.cursor,
      }
    },
    async inclusion(notary, query) {
      const { logId, size: committed } = await open(notary)
      const { index } = query
      const size = query.size ?? committed
      requireAtMost('size', size, committed)
      if (index >= size) throw unfit('index', `Input should be less than ${size}`, 'less_than')
      const { leafHash, path, root } = await logs.readInclusion({ logId, index, size })
      return {
        notary,
        index,
        size,
        root: encodeHex(root),
        leaf_hash: encodeHex(leafHash),
        path: path.map(encodeHex),
      }
    },
    async consistency(notary, query) {
      const { logId, size: committed } = await open(notary)
      const { from } = query
      const to = query.to ?? committed
      requireAtMost('to', to, committed)
      requireAtMost('from', from, to)
      const path = await logs.readConsistency({ logId, from, to })
      return { notary, from, to, path: path.map(encodeHex) }
    },
    async leaves(notary, { start, end }) {
      const { logId, size: committed } = await open(notary)
      const wanted = end ?? committed
      requireAtMost('end', wanted, committed)
      requireAtMost('start', start, wanted)
      const last = Math.min(wanted, start + LEAVES_MAX)
      const leaves = await logs.listLeaves({ logId, start, end: last })
      return { notary, start, end: last, leaves: leaves.map(encodeHex) }
    },
    async records(notary, { start, limit, viewer }) {
      const { logId, size } = await open(notary)
      requireAtMost('start', start, size)
      const { texts, cursor } = await fillPage({
        limit,
        cursor: start - 1,
        cursorOf: ({ index }) => index,
        read: async (after, count) => {
          const scope = scopeOfViewer(viewer, isOpen)
          const from = (after ?? -1) + 1
          const found = await records.listFrom({ ...scope, logId, start: from, limit: count + 1 })
          return { records: found.slice(0, count), hasMore: found.length > count }
        },
      })
      const next = cursor === null ? null : cursor + 1
      return `{"notary":"${notary}","records":[${texts.join()}],"next":${next}}`
    },
  }
}

function requireAtMost(name: string, value: number, most: number): void {
  if (value > most)
    throw unfit(name, `Input should be less than or equal to ${most}`, 'less_than_equal')
}

function unfit(name: string, msg: string, type: string): ValidationError {
  return new ValidationError([{ loc: ['query', name], msg, type }])
}

function describeLog(log: StoredLog) {
  return {
    notary: log.notary,
    public_key: log.publicKey,
    chain_id: log.chainId,
    contract: log.contract,
    boot_configuration: JSON.parse(log.bootConfiguration),
    created_at: log.createdAt,
    size: log.size,
    root: encodeHex(log.root),
    head: log.head && describeStoredHead(log.head),
    attestation_sha256: log.attestationDigest,
  }
}

/** Returns a head in the form of the API's answers. */
export function describeStoredHead({ size, root, signature, createdAt, anchor }: StoredHead) {
  return {
    size,
    root: encodeHex(root),
    signature: `0x${encodeHex(signature)}`,
    created_at: createdAt,
    anchor: {
      tx_hash: anchor.txHash,
      ...(anchor.replaces.length === 0 ? {} : { replaces: anchor.replaces }),
      state: anchor.state,
      block_number: anchor.blockNumber,
      block_hash: anchor.blockHash,
    },
  }
}

function describeAttestation(attestation: StoredHeadAttestation) {
  return {
    size: attestation.size,
    root: encodeHex(attestation.root),
    block_number: attestation.blockNumber,
    block_hash: `0x${encodeHex(attestation.blockHash)}`,
    created_at: attestation.createdAt,
    document: encodeBase64(attestation.document),
  }
}

/**
 * Maximum bytes of all documents on a page. The page ends before the head that would exceed this
 * maximum, but always has one head.
 */
export const HEAD_PAGE_BYTES_MAX = 4 * 1024 * 1024

export type HeadOrder = 'asc' | 'desc'

/** Heads, and the attestations that belong to these heads (readHeadPage). */
type HeadPage = {
  readonly heads: readonly StoredHead[]
  readonly attestations: readonly StoredHeadAttestation[]
  /**
   * Size of the last head. Null if no heads follow: the page then has all remaining attestations.
   */
  readonly cursor: number | null
}

export type HeadPageSources = {
  readonly logs: Pick<LogsStore, 'listHeads' | 'listHeadsBefore'>
  readonly headAttestations: Pick<
    HeadAttestationsStore,
    'listHeadAttestations' | 'weighHeadAttestations'
  >
}

/**
 * Reads at most `limit` heads after the head of size `cursor` (null: from the beginning), with
 * their attestations. Reads fewer heads, but at least one, if the attestations have more than
 * `bytesMax` bytes. An attestation of size N is returned with the next head: in ascending order the
 * smallest head of size N or more, in descending order the largest head of size N or less. A head
 * has few attestations: each size has at most two, and the gateway requests the next attestation
 * only when the leaves of the previous one are committed.
 */
export async function readHeadPage(
  { logs, headAttestations }: HeadPageSources,
  query: {
    readonly logId: number
    readonly limit: number
    readonly cursor: number | null
    readonly order: HeadOrder
    readonly bytesMax?: number
  },
): Promise<HeadPage> {
  const { logId, limit, cursor: from, order, bytesMax = HEAD_PAGE_BYTES_MAX } = query
  const found =
    order === 'asc'
      ? await logs.listHeads({ logId, afterSize: from, limit: limit + 1 })
      : await logs.listHeadsBefore({ logId, beforeSize: from, limit: limit + 1 })
  const given = found.slice(0, limit)
  const rangeTo = (last: number | null) =>
    order === 'asc'
      ? { logId, afterSize: from, throughSize: last }
      : { logId, afterSize: last && last - 1, throughSize: from === null ? null : from - 1 }
  const ascending = await headAttestations.weighHeadAttestations(
    rangeTo(lastOf(given, { isMore: found.length > limit })),
  )
  const weights = order === 'asc' ? ascending : ascending.toReversed()
  const heads = given.slice(0, countFitting(given, { weights, order, bytesMax }))
  const cursor = lastOf(heads, { isMore: found.length > heads.length })
  const attestations = await headAttestations.listHeadAttestations(rangeTo(cursor))
  return { heads, attestations, cursor }
}

function lastOf(
  heads: readonly StoredHead[],
  { isMore }: { readonly isMore: boolean },
): number | null {
  return isMore ? (heads.at(-1)?.size ?? null) : null
}

/** Returns how many heads fit on the page with their attestations, at least one. */
function countFitting(
  heads: readonly StoredHead[],
  parts: {
    /** In the order of the heads. */
    readonly weights: readonly { readonly size: number; readonly bytes: number }[]
    readonly order: HeadOrder
    readonly bytesMax: number
  },
): number {
  let bytes = 0
  const tooLarge = parts.weights.find((one) => {
    bytes += one.bytes
    return bytes > parts.bytesMax
  })
  if (tooLarge === undefined) return heads.length
  const isBefore = (size: number) =>
    parts.order === 'asc' ? size < tooLarge.size : size > tooLarge.size
  return Math.max(1, heads.filter(({ size }) => isBefore(size)).length)
}
