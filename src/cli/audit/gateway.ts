import type { Json } from '../../../attestation/json/value.ts'
import {
  type HeadPage,
  PAGE_ENTRIES_MAX,
  PAGE_LEAVES_MAX,
  PAGE_RECORDS_MAX,
  parseBootAnswer,
  parseConsistency,
  parseHeadPage,
  parseInclusion,
  parseLeaves,
  parseLog,
  parseLogPage,
  parseRecords,
  type ServedHead,
  type ServedLog,
} from './answers.ts'
import { GatewayFault } from './gateway-fault.ts'
import type { GatewayHttp } from './gateway-http.ts'

/** Most logs of one gateway: a restart of its enclave makes one. */
export const LOGS_MAX = 10_000

/** Largest answers, bytes. A page of records is 32 MiB of text, or one record of over 40. */
export const ANSWER_BYTES_MAX = {
  logs: 64 * 1024 * 1024,
  heads: 128 * 1024 * 1024,
  bootStatement: 1024 * 1024,
  leaves: 1024 * 1024,
  proof: 16 * 1024,
  records: 128 * 1024 * 1024,
} as const

/**
 * A gateway's logs, read as an outsider. All throw GatewayFault. What it says is checked for its form here, and that every
 * page gets further; everything else is claims.
 */
export type Gateway = {
  /** All of its logs, newest first. */
  listLogs(): Promise<readonly ServedLog[]>
  fetchLog(notary: string): Promise<ServedLog>
  /**
   * What the notary's enclave stated of the logs before its own, as it came; null when none is
   * served.
   */
  fetchBootStatement(notary: string): Promise<Json | null>
  /** Pages of heads of more leaves than `after` (null: from the first), ascending. */
  headPages(notary: string, after: number | null): AsyncIterable<HeadPage>
  /** The head of exactly this size, or null. */
  fetchHead(notary: string, size: number): Promise<ServedHead | null>
  /** Leaf hashes from `start` on, at least one and none from `end` on. */
  fetchLeaves(notary: string, start: number, end: number): Promise<readonly Uint8Array[]>
  fetchInclusion(
    notary: string,
    position: { readonly index: number; readonly size: number },
  ): Promise<{
    readonly root: Uint8Array
    readonly leafHash: Uint8Array
    readonly path: readonly Uint8Array[]
  }>
  fetchConsistency(notary: string, from: number, to: number): Promise<readonly Uint8Array[]>
  /** Records of leaves from `start` on, and where to go on; null: at the end. */
  fetchRecords(
    notary: string,
    start: number,
  ): Promise<{ readonly records: readonly Json[]; readonly next: number | null }>
}

/** Gives the gateway behind a client. */
export function openGateway(http: GatewayHttp): Gateway {
  const fetchHeadPage = (notary: string, cursor: number | null, limit: number) =>
    fetchHeads(http, { notary, cursor, limit })

  return {
    listLogs: () => listLogs(http),
    async fetchLog(notary) {
      const path = `/v1/log/${notary}`
      const log = parseLog(await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.logs }), path)
      if (log.notary === notary) return log
      throw new GatewayFault('answer_invalid', { where: path, message: `expected the log of ${notary}` })
    },
    async fetchBootStatement(notary) {
      const path = `/v1/log/${notary}/boot-statement`
      try {
        const answer = await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.bootStatement })
        return parseBootAnswer(answer, path, notary)
      } catch (fault) {
        // A gateway of an earlier version has no such path.
        if (fault instanceof GatewayFault && fault.status === 404) return null
        throw fault
      }
    },
    async *headPages(notary, after) {
      let cursor = after
      do {
        const page = await fetchHeadPage(notary, cursor, PAGE_ENTRIES_MAX)
        yield page
        cursor = page.cursor
      } while (cursor !== null)
    },
    async fetchHead(notary, size) {
      const { heads } = await fetchHeadPage(notary, size === 0 ? null : size - 1, 1)
      return heads.find((head) => head.size === size) ?? null
    },
    async fetchLeaves(notary, start, end) {
      const last = Math.min(end, start + PAGE_LEAVES_MAX)
      const path = `/v1/log/${notary}/leaves?start=${start}&end=${last}`
      const bytesMax = ANSWER_BYTES_MAX.leaves
      const page = parseLeaves(await http.fetchObject(path, { bytesMax }), path, notary)
      const isWhole = page.start === start && page.end > start && page.end <= last
      if (isWhole && page.leaves.length === page.end - start) return page.leaves
      throw new GatewayFault('leaf_missing', {
        where: path,
        message: `expected the leaves from ${start} on, got ${page.leaves.length} of ${page.start} to ${page.end}`,
      })
    },
    async fetchInclusion(notary, { index, size }) {
      const path = `/v1/log/${notary}/inclusion?index=${index}&size=${size}`
      const answer = await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.proof })
      return parseInclusion(answer, path, { notary, index, size })
    },
    async fetchConsistency(notary, from, to) {
      const path = `/v1/log/${notary}/consistency?from=${from}&to=${to}`
      const answer = await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.proof })
      return parseConsistency(answer, path, { notary, from, to })
    },
    async fetchRecords(notary, start) {
      const path = `/v1/log/${notary}/records?start=${start}&limit=${PAGE_RECORDS_MAX}`
      const bytesMax = ANSWER_BYTES_MAX.records
      const page = parseRecords(await http.fetchObject(path, { bytesMax }), path, notary)
      if (page.next !== null && page.next <= start)
        throw stuck(path, `next is ${page.next}, which is no further`)
      return page
    },
  }
}

async function fetchHeads(
  http: GatewayHttp,
  query: { readonly notary: string; readonly cursor: number | null; readonly limit: number },
): Promise<HeadPage> {
  const { notary, cursor, limit } = query
  const path = `/v1/log/${notary}/heads?limit=${limit}${cursor === null ? '' : `&cursor=${cursor}`}`
  const page = parseHeadPage(await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.heads }), path, notary)
  const isStuck =
    page.cursor !== null && (page.cursor !== page.heads.at(-1)?.size || page.cursor <= (cursor ?? -1))
  if (isStuck) throw stuck(path, `the cursor ${page.cursor} leads no further`)
  return page
}

async function listLogs(http: GatewayHttp): Promise<readonly ServedLog[]> {
  const found = new Map<string, ServedLog>()
  let cursor: string | null = null
  do {
    const path: string = `/v1/log?limit=100${cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`}`
    const page = parseLogPage(await http.fetchObject(path, { bytesMax: ANSWER_BYTES_MAX.logs }), path)
    const isNew = page.logs.some(({ notary }) => !found.has(notary))
    if (page.cursor !== null && !isNew) throw stuck(path, 'the page has no log that is new')
    for (const log of page.logs) {
      const { notary } = log
      if (found.has(notary))
        throw new GatewayFault('answer_invalid', {
          where: path,
          message: `expected the log of ${notary} once`,
        })
      found.set(notary, log)
    }
    if (found.size > LOGS_MAX) throw stuck(path, `expected at most ${LOGS_MAX} logs`)
    cursor = page.cursor
  } while (cursor !== null)
  return [...found.values()]
}

function stuck(where: string, message: string): GatewayFault {
  return new GatewayFault('cursor_stuck', { where, message })
}
