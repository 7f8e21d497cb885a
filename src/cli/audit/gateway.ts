import { PUBLIC_KEY_BYTES, SIGNATURE_BYTES } from '../../../attestation/account.ts'
import { decodeHex, HASH_BYTES } from '../../../attestation/bytes.ts'
import { REANCHORED_MAX } from '../../../attestation/evidence/bundle.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'
import { PROOF_HASHES_MAX } from '../../../attestation/merkle/verify.ts'
import type { LogDomain } from '../../../attestation/tree-head.ts'
import { GatewayFault, type GatewayHttp } from './gateway-http.ts'

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

/** Most entries of a page, as the API has it. */
export const PAGE_ENTRIES_MAX = 1000
export const PAGE_LEAVES_MAX = 10_000
export const PAGE_RECORDS_MAX = 100
/** Head attestations of one page: two for each size that has any. */
export const PAGE_ATTESTATIONS_MAX = 10_000

/** A log, as the gateway describes it. */
export type ServedLog = {
  /** Address, 0x, lower case; the log's id. */
  readonly notary: string
  readonly publicKey: Uint8Array
  readonly domain: LogDomain
  readonly bootConfiguration: JsonObject
  readonly size: number
  readonly root: Uint8Array
  /** The newest head that is anchored. */
  readonly head: ServedHead | null
  /** SHA-256 of the newest record's attestation document. */
  readonly attestationDigest: string | null
}

/** A head, and what the gateway says of its anchor. */
export type ServedHead = {
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  /** Unix seconds. */
  readonly createdAt: number
  readonly anchor: {
    readonly txHash: string
    /**
     * Earlier transactions of this head, the first one first, which the gateway says cannot be
     * mined.
     */
    readonly replaces: readonly string[]
    readonly state: AnchorState
    readonly blockNumber: number | null
    readonly blockHash: string | null
  }
}

export type AnchorState = (typeof ANCHOR_STATES)[number]
const ANCHOR_STATES = ['pending', 'mined', 'confirmed', 'reverted'] as const

export type HeadPage = {
  readonly heads: readonly ServedHead[]
  /** As they came: verifyHeadAttestation reads them. */
  readonly attestations: readonly Json[]
  readonly cursor: number | null
}

/** All of these throw GatewayFault `answer_invalid`; `where` is the question. */
export function parseLogPage(
  answer: JsonObject,
  where: string,
): { readonly logs: readonly ServedLog[]; readonly cursor: string | null } {
  const read = readAnswer(where)
  const logs = read
    .array(answer, 'logs', PAGE_ENTRIES_MAX)
    .map((log) => parseLog(read.entry(log, 'log'), where))
  const cursor = memberOf(answer, 'cursor') === null ? null : read.text(answer, 'cursor')
  return { logs, cursor }
}

export function parseLog(log: JsonObject, where: string): ServedLog {
  const read = readAnswer(where)
  const head = memberOf(log, 'head')
  return {
    notary: read.hex(log, 'notary', ADDRESS),
    publicKey: read.bytes(log, 'public_key', { length: PUBLIC_KEY_BYTES, prefix: '0x' }),
    domain: { chainId: read.count(log, 'chain_id'), contract: read.hex(log, 'contract', ADDRESS) },
    bootConfiguration: read.object(log, 'boot_configuration'),
    size: read.count(log, 'size'),
    root: read.bytes(log, 'root', HASH),
    head: head === null ? null : parseHead(read.entry(head, 'head'), where),
    attestationDigest:
      memberOf(log, 'attestation_sha256') === null ? null : read.hex(log, 'attestation_sha256', HASH),
  }
}

/**
 * Gives the boot statement in an answer, not yet checked; null when there is none. Throws
 * GatewayFault.
 */
export function parseBootAnswer(answer: JsonObject, where: string, notary: string): Json | null {
  requireNotary(answer, where, notary)
  return memberOf(answer, 'statement') ?? null
}

export function parseHeadPage(answer: JsonObject, where: string, notary: string): HeadPage {
  const read = readAnswer(where)
  requireNotary(answer, where, notary)
  return {
    heads: read
      .array(answer, 'heads', PAGE_ENTRIES_MAX)
      .map((head) => parseHead(read.entry(head, 'head'), where)),
    attestations: read.array(answer, 'attestations', PAGE_ATTESTATIONS_MAX),
    cursor: read.countOrNull(answer, 'cursor'),
  }
}

export function parseLeaves(
  answer: JsonObject,
  where: string,
  notary: string,
): { readonly start: number; readonly end: number; readonly leaves: readonly Uint8Array[] } {
  const read = readAnswer(where)
  requireNotary(answer, where, notary)
  return {
    start: read.count(answer, 'start'),
    end: read.count(answer, 'end'),
    leaves: read.hashes(answer, 'leaves', PAGE_LEAVES_MAX),
  }
}

export function parseInclusion(
  answer: JsonObject,
  where: string,
  asked: { readonly notary: string; readonly index: number; readonly size: number },
): { readonly root: Uint8Array; readonly leafHash: Uint8Array; readonly path: readonly Uint8Array[] } {
  const read = readAnswer(where)
  requireNotary(answer, where, asked.notary)
  if (read.count(answer, 'index') !== asked.index || read.count(answer, 'size') !== asked.size)
    throw read.fault(`a proof for index ${asked.index} of ${asked.size}`)
  return {
    root: read.bytes(answer, 'root', HASH),
    leafHash: read.bytes(answer, 'leaf_hash', HASH),
    path: read.hashes(answer, 'path', PROOF_HASHES_MAX),
  }
}

export function parseConsistency(
  answer: JsonObject,
  where: string,
  asked: { readonly notary: string; readonly from: number; readonly to: number },
): readonly Uint8Array[] {
  const read = readAnswer(where)
  requireNotary(answer, where, asked.notary)
  if (read.count(answer, 'from') !== asked.from || read.count(answer, 'to') !== asked.to)
    throw read.fault(`a proof from ${asked.from} to ${asked.to}`)
  return read.hashes(answer, 'path', PROOF_HASHES_MAX)
}

export function parseRecords(
  answer: JsonObject,
  where: string,
  notary: string,
): { readonly records: readonly Json[]; readonly next: number | null } {
  const read = readAnswer(where)
  requireNotary(answer, where, notary)
  return {
    records: read.array(answer, 'records', PAGE_RECORDS_MAX),
    next: read.countOrNull(answer, 'next'),
  }
}

const HASH = { length: HASH_BYTES } as const
const PREFIXED_HASH = { length: HASH_BYTES, prefix: '0x' } as const
const ADDRESS = { length: 20, prefix: '0x' } as const

function parseHead(head: JsonObject, where: string): ServedHead {
  const read = readAnswer(where)
  const anchor = read.object(head, 'anchor')
  const state = ANCHOR_STATES.find((known) => known === memberOf(anchor, 'state'))
  if (state === undefined) throw read.fault(`state to be one of ${ANCHOR_STATES.join(', ')}`)
  return {
    size: read.count(head, 'size'),
    root: read.bytes(head, 'root', HASH),
    signature: read.bytes(head, 'signature', { length: SIGNATURE_BYTES, prefix: '0x' }),
    createdAt: read.count(head, 'created_at'),
    anchor: {
      txHash: read.hex(anchor, 'tx_hash', PREFIXED_HASH),
      replaces: parseReplaced(anchor, where),
      state,
      blockNumber: read.countOrNull(anchor, 'block_number'),
      blockHash:
        memberOf(anchor, 'block_hash') === null ? null : read.hex(anchor, 'block_hash', PREFIXED_HASH),
    },
  }
}

function parseReplaced(anchor: JsonObject, where: string): readonly string[] {
  if (memberOf(anchor, 'replaces') === undefined) return []
  const read = readAnswer(where)
  return read.array(anchor, 'replaces', REANCHORED_MAX).map((hash) => {
    if (typeof hash === 'string' && /^0x[0-9a-f]{64}$/.test(hash)) return hash
    throw read.fault('replaces to be transaction hashes')
  })
}

function requireNotary(answer: JsonObject, where: string, notary: string): void {
  const read = readAnswer(where)
  if (read.hex(answer, 'notary', ADDRESS) !== notary) throw read.fault(`an answer for ${notary}`)
}

/** Reads members of one answer, each in its one form. Members that are not asked for are left alone. */
export type AnswerReader = {
  count(object: JsonObject, name: string): number
  countOrNull(object: JsonObject, name: string): number | null
  /** Bytes of hex of this many bytes, lower case, with this prefix (default none). */
  bytes(
    object: JsonObject,
    name: string,
    form: { readonly length: number; readonly prefix?: '0x' },
  ): Uint8Array
  /** Hex as it is written. */
  hex(object: JsonObject, name: string, form: { readonly length: number; readonly prefix?: '0x' }): string
  text(object: JsonObject, name: string): string
  object(object: JsonObject, name: string): JsonObject
  array(object: JsonObject, name: string, lengthMax: number): readonly Json[]
  /** Hashes (32 bytes) of an array of hex without prefix. */
  hashes(object: JsonObject, name: string, lengthMax: number): readonly Uint8Array[]
  /** The object that an entry of an array is. */
  entry(json: Json | undefined, name: string): JsonObject
  /** A fault of this answer. */
  fault(expectation: string): GatewayFault
}

/** Gives a reader for the answer of `where` (path and query). It throws GatewayFault `answer_invalid`. */
export function readAnswer(where: string): AnswerReader {
  const fault = (expectation: string) =>
    new GatewayFault('answer_invalid', { where, message: `expected ${expectation}` })

  const hex: AnswerReader['hex'] = (object, name, { length, prefix = '' }) => {
    const value = memberOf(object, name)
    const isHex =
      typeof value === 'string' &&
      value.length === prefix.length + 2 * length &&
      value.startsWith(prefix) &&
      HEX_DIGITS.test(value.slice(prefix.length))
    if (!isHex) throw fault(`${name} to be ${prefix} and ${length} bytes of lower-case hex`)
    return value
  }

  const count: AnswerReader['count'] = (object, name) => {
    const value = memberOf(object, name)
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
      throw fault(`${name} to be a whole number from 0 to 2^53-1`)
    return value
  }

  const array: AnswerReader['array'] = (object, name, lengthMax) => {
    const value = memberOf(object, name)
    if (!isJsonArray(value) || value.length > lengthMax)
      throw fault(`${name} to be an array of at most ${lengthMax}`)
    return value
  }

  const entry: AnswerReader['entry'] = (value, name) => {
    if (!isJsonObject(value)) throw fault(`${name} to be an object`)
    return value
  }

  return {
    fault,
    hex,
    count,
    array,
    entry,
    bytes: (object, name, form) => decodeHex(hex(object, name, form)),
    countOrNull: (object, name) => (memberOf(object, name) === null ? null : count(object, name)),
    text: (object, name) => {
      const value = memberOf(object, name)
      if (typeof value !== 'string') throw fault(`${name} to be a string`)
      return value
    },
    object: (object, name) => entry(memberOf(object, name), name),
    hashes: (object, name, lengthMax) =>
      array(object, name, lengthMax).map((value, at) => {
        if (typeof value !== 'string' || !HASH_FORM.test(value))
          throw fault(`${name}.${at} to be 32 bytes of lower-case hex`)
        // Native, for there are millions of them.
        return new Uint8Array(Buffer.from(value, 'hex'))
      }),
  }
}

const HEX_DIGITS = /^[0-9a-f]*$/
const HASH_FORM = /^[0-9a-f]{64}$/
