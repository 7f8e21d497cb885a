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
const LOGS_MAX = 10_000

/** Largest answers, bytes. A page of records is 32 MiB of text, or one record of over 40. */
const ANSWER_BYTES_MAX = {
  logs: 64 * 1024 * 1024,
  heads: 128 * 1024 * 1024,
  bootStatement: 1024 * 1024,
  leaves: 1024 * 1024,
  proof: 16 * 1024,
  records: 128 * 1024 * 1024,
} as const

/** Most entries of a page, as the API has it. */
const PAGE_ENTRIES_MAX = 1000
const PAGE_LEAVES_MAX = 10_000
const PAGE_RECORDS_MAX = 100
/** Head attestations of one page: two for each size that has any. */
const PAGE_ATTESTATIONS_MAX = 10_000

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
    /** Earlier transactions of this head, in order, which the gateway says cannot be mined. */
    readonly replaces: readonly string[]
    readonly state: (typeof ANCHOR_STATES)[number]
    readonly blockNumber: number | null
    readonly blockHash: string | null
  }
}

const ANCHOR_STATES = ['pending', 'mined', 'confirmed', 'reverted'] as const

type HeadPage = {
  readonly heads: readonly ServedHead[]
  /** As they came: verifyHeadAttestation reads them. */
  readonly attestations: readonly Json[]
  readonly cursor: number | null
}

type InclusionProof = {
  readonly root: Uint8Array
  readonly leafHash: Uint8Array
  readonly path: readonly Uint8Array[]
}

/** A gateway's logs, read as an outsider. */
export type Gateway = ReturnType<typeof openGateway>

/**
 * Gives the gateway behind a client. What it says is checked for its form here, and that every page
 * gets further; everything else is claims. All methods throw GatewayFault.
 *
 * The forms are read here and not by the schemas of the API: those are closed and have no bounds,
 * and an auditor leaves members alone that a later version adds, bounds every list before it looks
 * at its entries, and takes malformed records and attestations for findings, not for the end of the
 * audit.
 */
export function openGateway(http: GatewayHttp) {
  async function ask(path: string, bytesMax: number): Promise<Answer> {
    return new Answer(await http.fetchObject(path, { bytesMax }), path)
  }

  /** An answer about one log. */
  async function askLog(notary: string, rest: string, bytesMax: number): Promise<Answer> {
    const answer = await ask(`/v1/log/${notary}/${rest}`, bytesMax)
    if (answer.hex('notary', ADDRESS) !== notary) throw answer.expected(`an answer for ${notary}`)
    return answer
  }

  async function fetchHeadPage(
    notary: string,
    cursor: number | null,
    limit: number,
  ): Promise<HeadPage> {
    const query = `heads?limit=${limit}${cursor === null ? '' : `&cursor=${cursor}`}`
    const answer = await askLog(notary, query, ANSWER_BYTES_MAX.heads)
    const page = {
      heads: answer.objects('heads', 'head', PAGE_ENTRIES_MAX).map(readHead),
      attestations: answer.array('attestations', PAGE_ATTESTATIONS_MAX),
      cursor: answer.isNull('cursor') ? null : answer.count('cursor'),
    }
    const isStuck =
      page.cursor !== null &&
      (page.cursor !== page.heads.at(-1)?.size || page.cursor <= (cursor ?? -1))
    if (isStuck) throw answer.fault('cursor_stuck', `the cursor ${page.cursor} leads no further`)
    return page
  }

  return {
    /** All of its logs, newest first. */
    async listLogs(): Promise<readonly ServedLog[]> {
      const found = new Map<string, ServedLog>()
      let cursor: string | null = null
      do {
        const after: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
        const answer = await ask(`/v1/log?limit=100${after}`, ANSWER_BYTES_MAX.logs)
        const logs = answer.objects('logs', 'log', PAGE_ENTRIES_MAX).map(readLog)
        cursor = answer.isNull('cursor') ? null : answer.text('cursor')
        const isNew = logs.some(({ notary }) => !found.has(notary))
        if (cursor !== null && !isNew)
          throw answer.fault('cursor_stuck', 'the page has no log that is new')
        for (const log of logs) {
          if (found.has(log.notary)) throw answer.expected(`the log of ${log.notary} once`)
          found.set(log.notary, log)
        }
        if (found.size > LOGS_MAX)
          throw answer.fault('cursor_stuck', `expected at most ${LOGS_MAX} logs`)
      } while (cursor !== null)
      return [...found.values()]
    },

    async fetchLog(notary: string): Promise<ServedLog> {
      const answer = await ask(`/v1/log/${notary}`, ANSWER_BYTES_MAX.logs)
      const log = readLog(answer)
      if (log.notary === notary) return log
      throw answer.expected(`the log of ${notary}`)
    },

    /**
     * What the notary's enclave stated of the logs before its own, as it came; null when none is
     * served.
     */
    async fetchBootStatement(notary: string): Promise<Json | null> {
      try {
        const answer = await askLog(notary, 'boot-statement', ANSWER_BYTES_MAX.bootStatement)
        return answer.value('statement') ?? null
      } catch (fault) {
        // A gateway of an earlier version has no such path.
        if (fault instanceof GatewayFault && fault.status === 404) return null
        throw fault
      }
    },

    /** Pages of heads of more leaves than `after` (null: from the first), ascending. */
    async *headPages(notary: string, after: number | null): AsyncGenerator<HeadPage> {
      let cursor = after
      do {
        const page = await fetchHeadPage(notary, cursor, PAGE_ENTRIES_MAX)
        yield page
        cursor = page.cursor
      } while (cursor !== null)
    },

    /** The head of exactly this size, or null. */
    async fetchHead(notary: string, size: number): Promise<ServedHead | null> {
      const { heads } = await fetchHeadPage(notary, size === 0 ? null : size - 1, 1)
      return heads.find((head) => head.size === size) ?? null
    },

    /** Leaf hashes from `start` on, at least one and none from `end` on. */
    async fetchLeaves(notary: string, start: number, end: number): Promise<readonly Uint8Array[]> {
      const last = Math.min(end, start + PAGE_LEAVES_MAX)
      const answer = await askLog(
        notary,
        `leaves?start=${start}&end=${last}`,
        ANSWER_BYTES_MAX.leaves,
      )
      const [from, to] = [answer.count('start'), answer.count('end')]
      const leaves = answer.hashes('leaves', PAGE_LEAVES_MAX)
      if (from === start && to > start && to <= last && leaves.length === to - start) return leaves
      throw answer.fault(
        'leaf_missing',
        `expected the leaves from ${start} on, got ${leaves.length} of ${from} to ${to}`,
      )
    },

    async fetchInclusion(
      notary: string,
      { index, size }: { readonly index: number; readonly size: number },
    ): Promise<InclusionProof> {
      const answer = await askLog(
        notary,
        `inclusion?index=${index}&size=${size}`,
        ANSWER_BYTES_MAX.proof,
      )
      if (answer.count('index') !== index || answer.count('size') !== size)
        throw answer.expected(`a proof for index ${index} of ${size}`)
      return {
        root: answer.bytes('root', HASH),
        leafHash: answer.bytes('leaf_hash', HASH),
        path: answer.hashes('path', PROOF_HASHES_MAX),
      }
    },

    async fetchConsistency(
      notary: string,
      from: number,
      to: number,
    ): Promise<readonly Uint8Array[]> {
      const answer = await askLog(
        notary,
        `consistency?from=${from}&to=${to}`,
        ANSWER_BYTES_MAX.proof,
      )
      if (answer.count('from') !== from || answer.count('to') !== to)
        throw answer.expected(`a proof from ${from} to ${to}`)
      return answer.hashes('path', PROOF_HASHES_MAX)
    },

    /** Records of leaves from `start` on, and where to go on; null: at the end. */
    async fetchRecords(
      notary: string,
      start: number,
    ): Promise<{ readonly records: readonly Json[]; readonly next: number | null }> {
      const query = `records?start=${start}&limit=${PAGE_RECORDS_MAX}`
      const answer = await askLog(notary, query, ANSWER_BYTES_MAX.records)
      const records = answer.array('records', PAGE_RECORDS_MAX)
      const next = answer.isNull('next') ? null : answer.count('next')
      if (next !== null && next <= start)
        throw answer.fault('cursor_stuck', `next is ${next}, which is no further`)
      return { records, next }
    },
  }
}

function readLog(log: Answer): ServedLog {
  return {
    notary: log.hex('notary', ADDRESS),
    publicKey: log.bytes('public_key', { length: PUBLIC_KEY_BYTES, prefix: '0x' }),
    domain: { chainId: log.count('chain_id'), contract: log.hex('contract', ADDRESS) },
    bootConfiguration: log.json('boot_configuration'),
    size: log.count('size'),
    root: log.bytes('root', HASH),
    head: log.isNull('head') ? null : readHead(log.object('head')),
    attestationDigest: log.isNull('attestation_sha256')
      ? null
      : log.hex('attestation_sha256', HASH),
  }
}

function readHead(head: Answer): ServedHead {
  const anchor = head.object('anchor')
  const state = ANCHOR_STATES.find((known) => known === anchor.value('state'))
  if (state === undefined) throw anchor.expected(`state to be one of ${ANCHOR_STATES.join(', ')}`)
  return {
    size: head.count('size'),
    root: head.bytes('root', HASH),
    signature: head.bytes('signature', { length: SIGNATURE_BYTES, prefix: '0x' }),
    createdAt: head.count('created_at'),
    anchor: {
      txHash: anchor.hex('tx_hash', TX_HASH),
      replaces: anchor.value('replaces') === undefined ? [] : readReplaced(anchor),
      state,
      blockNumber: anchor.isNull('block_number') ? null : anchor.count('block_number'),
      blockHash: anchor.isNull('block_hash') ? null : anchor.hex('block_hash', TX_HASH),
    },
  }
}

function readReplaced(anchor: Answer): readonly string[] {
  return anchor.array('replaces', REANCHORED_MAX).map((hash) => {
    if (isHex(hash, TX_HASH)) return hash
    throw anchor.expected('replaces to be transaction hashes')
  })
}

/** Hex of so many bytes, lower case, with this prefix (default none). */
type HexForm = { readonly length: number; readonly prefix?: '0x' }

const HASH: HexForm = { length: HASH_BYTES }
const TX_HASH: HexForm = { length: HASH_BYTES, prefix: '0x' }
const ADDRESS: HexForm = { length: 20, prefix: '0x' }

function isHex(value: Json | undefined, form: HexForm): value is string {
  const { length } = form
  const prefix = form.prefix ?? ''
  return (
    typeof value === 'string' &&
    value.length === prefix.length + 2 * length &&
    value.startsWith(prefix) &&
    /^[0-9a-f]*$/.test(value.slice(prefix.length))
  )
}

/**
 * An object of an answer, whose own members are read each in its one form. Throws GatewayFault
 * `answer_invalid`.
 */
class Answer {
  private readonly members: JsonObject
  /** What was asked: path and query. */
  private readonly where: string

  constructor(members: JsonObject, where: string) {
    this.members = members
    this.where = where
  }

  fault(code: GatewayFault['code'], message: string): GatewayFault {
    return new GatewayFault(code, { where: this.where, message })
  }

  expected(what: string): GatewayFault {
    return this.fault('answer_invalid', `expected ${what}`)
  }

  value(name: string): Json | undefined {
    return memberOf(this.members, name)
  }

  isNull(name: string): boolean {
    return this.value(name) === null
  }

  count(name: string): number {
    const value = this.value(name)
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
      throw this.expected(`${name} to be a whole number from 0 to 2^53-1`)
    return value
  }

  text(name: string): string {
    const value = this.value(name)
    if (typeof value !== 'string') throw this.expected(`${name} to be a string`)
    return value
  }

  /** Hex as it is written. */
  hex(name: string, form: HexForm): string {
    const value = this.value(name)
    if (isHex(value, form)) return value
    throw this.expected(
      `${name} to be ${form.prefix ?? ''} and ${form.length} bytes of lower-case hex`,
    )
  }

  bytes(name: string, form: HexForm): Uint8Array {
    return decodeHex(this.hex(name, form))
  }

  json(name: string): JsonObject {
    return this.asObject(this.value(name), name)
  }

  object(name: string): Answer {
    return new Answer(this.json(name), this.where)
  }

  array(name: string, lengthMax: number): readonly Json[] {
    const value = this.value(name)
    if (!isJsonArray(value) || value.length > lengthMax)
      throw this.expected(`${name} to be an array of at most ${lengthMax}`)
    return value
  }

  objects(name: string, entryName: string, lengthMax: number): readonly Answer[] {
    return this.array(name, lengthMax).map(
      (one) => new Answer(this.asObject(one, entryName), this.where),
    )
  }

  /** Hashes (32 bytes) of an array of hex without prefix. */
  hashes(name: string, lengthMax: number): readonly Uint8Array[] {
    return this.array(name, lengthMax).map((value, at) => {
      if (typeof value !== 'string' || !HASH_FORM.test(value))
        throw this.expected(`${name}.${at} to be 32 bytes of lower-case hex`)
      // Native, for there are millions of them.
      return new Uint8Array(Buffer.from(value, 'hex'))
    })
  }

  private asObject(value: Json | undefined, name: string): JsonObject {
    if (isJsonObject(value)) return value
    throw this.expected(`${name} to be an object`)
  }
}

const HASH_FORM = /^[0-9a-f]{64}$/
