import { z } from 'zod'
import { PUBLIC_KEY_BYTES, SIGNATURE_BYTES } from '#attestation/account.ts'
import { decodeHex, HASH_BYTES } from '#attestation/bytes.ts'
import { REANCHORED_MAX } from '#attestation/evidence/bundle.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { PROOF_HASHES_MAX } from '#attestation/merkle/hash.ts'
import { GatewayFault, type GatewayHttp } from './gateway-http.ts'

/** Maximum number of logs. Each restart of an enclave creates a log. */
const LOGS_MAX = 10_000

/** Limits in bytes. Record pages have up to 32 MiB, or over 40 MiB with one large record. */
const ANSWER_BYTES_MAX = {
  logs: 64 * 1024 * 1024,
  heads: 128 * 1024 * 1024,
  bootStatement: 1024 * 1024,
  leaves: 1024 * 1024,
  proof: 16 * 1024,
  records: 128 * 1024 * 1024,
} as const

/** The API sends at most this many entries on a page. */
const PAGE_ENTRIES_MAX = 1000
const PAGE_LEAVES_MAX = 10_000
const PAGE_RECORDS_MAX = 100
/** A page can have two attestations for each size. */
const PAGE_ATTESTATIONS_MAX = 10_000

// Schemas for the members of answers. The error messages begin with "expected", and `$` stands for
// the member's name.

const Count = z.custom<number>(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  '$ to be a whole number from 0 to 2^53-1',
)
const ObjectForm = z.custom<JsonObject>((value) => isJsonObject(value as Json), '$ to be an object')
const Address = hexText(20, '0x')
const TxHash = hexText(HASH_BYTES, '0x')
const HashText = hexText(HASH_BYTES)
const Hash = HashText.transform(decodeHex)

/** Lower-case hex of this many bytes. The parsed value is also hex. */
function hexText(
  length: number,
  prefix: '0x' | '' = '',
  message = `$ to be ${prefix} and ${length} bytes of lower-case hex`,
) {
  return z.string(message).regex(new RegExp(`^${prefix}[0-9a-f]{${2 * length}}$`), message)
}

/** An object whose unknown members are ignored. `name` is its name in error messages. */
function objectOf<Shape extends z.ZodRawShape>(shape: Shape, name = '$') {
  return z.object(shape, `${name} to be an object`)
}

/** The length is checked before the entries are read. */
function listOf<Entry extends z.ZodType>(entry: Entry, lengthMax: number) {
  const message = `$ to be an array of at most ${lengthMax}`
  return z.array(z.unknown(), message).max(lengthMax, message).pipe(z.array(entry))
}

const HASH_FORM = /^[0-9a-f]{64}$/

/** Reads hashes (32 bytes) in hex, without a schema for each: there can be millions. */
function hashesOf(lengthMax: number) {
  return listOf(z.unknown(), lengthMax).transform((list, context) =>
    list.map((value, at) => {
      if (typeof value === 'string' && HASH_FORM.test(value))
        return new Uint8Array(Buffer.from(value, 'hex'))
      const message = `$.${at} to be 32 bytes of lower-case hex`
      context.addIssue({ code: 'custom', message })
      return z.NEVER
    }),
  )
}

const STATES = ['pending', 'mined', 'confirmed', 'reverted'] as const

const AnchorForm = objectOf({
  state: z.enum(STATES, `state to be one of ${STATES.join(', ')}`),
  tx_hash: TxHash,
  replaces: listOf(
    hexText(HASH_BYTES, '0x', 'replaces to be transaction hashes'),
    REANCHORED_MAX,
  ).default([]),
  block_number: Count.nullable(),
  block_hash: TxHash.nullable(),
}).transform(({ state, tx_hash: txHash, replaces, ...block }) => ({
  txHash,
  /** Earlier transactions for this head, in order. The gateway states that they cannot be mined. */
  replaces,
  state,
  blockNumber: block.block_number,
  blockHash: block.block_hash,
}))

const HeadForm = objectOf(
  {
    anchor: AnchorForm,
    size: Count,
    root: Hash,
    signature: hexText(SIGNATURE_BYTES, '0x').transform(decodeHex),
    created_at: Count,
  },
  'head',
).transform(({ size, root, signature, created_at: createdAt, anchor }) => ({
  size,
  root,
  signature,
  /** Unix seconds. */
  createdAt,
  anchor,
}))

const LogForm = objectOf(
  {
    notary: Address,
    public_key: hexText(PUBLIC_KEY_BYTES, '0x').transform(decodeHex),
    chain_id: Count,
    contract: Address,
    boot_configuration: ObjectForm,
    size: Count,
    root: Hash,
    head: HeadForm.nullable(),
    attestation_sha256: HashText.nullable(),
  },
  'log',
).transform((log) => ({
  /** 0x, lower case. The notary identifies the log. */
  notary: log.notary,
  publicKey: log.public_key,
  domain: { chainId: log.chain_id, contract: log.contract },
  bootConfiguration: log.boot_configuration,
  size: log.size,
  root: log.root,
  /** The log's newest anchored head. */
  head: log.head,
  /** SHA-256 of the newest record's attestation document. */
  attestationDigest: log.attestation_sha256,
}))

export type ServedLog = Readonly<z.infer<typeof LogForm>>

export type ServedHead = Readonly<z.infer<typeof HeadForm>>

const AnyJson = z.custom<Json>()

const LogsPage = z.object({
  logs: listOf(LogForm, PAGE_ENTRIES_MAX),
  cursor: z.string('$ to be a string').nullable(),
})

/** Every answer about a log names the log's notary. */
const OfLog = z.object({ notary: Address })
const HeadPageForm = OfLog.extend({
  heads: listOf(HeadForm, PAGE_ENTRIES_MAX),
  /** Attestations as received. verifyHeadAttestation parses them. */
  attestations: listOf(AnyJson, PAGE_ATTESTATIONS_MAX),
  cursor: Count.nullable(),
})
const BootStatementForm = OfLog.extend({ statement: AnyJson.optional() })
const LeavesForm = OfLog.extend({ start: Count, end: Count, leaves: hashesOf(PAGE_LEAVES_MAX) })
const Path = hashesOf(PROOF_HASHES_MAX)
const InclusionForm = OfLog.extend({
  index: Count,
  size: Count,
  root: Hash,
  leaf_hash: Hash,
  path: Path,
})
const ConsistencyForm = OfLog.extend({ from: Count, to: Count, path: Path })
const RecordsForm = OfLog.extend({
  records: listOf(AnyJson, PAGE_RECORDS_MAX),
  next: Count.nullable(),
})

type HeadPage = Pick<z.infer<typeof HeadPageForm>, 'heads' | 'attestations' | 'cursor'>

/** `where` is the request: path and query. */
type Answer<Value> = Value & { readonly where: string }

export type AuditedGateway = ReturnType<typeof openGateway>

/**
 * Checks the form of each answer, and that each page makes progress. Does not check contents. All
 * methods throw GatewayFault.
 *
 * Does not use the API's schemas, which refuse unknown members and do not limit lists. A malformed
 * record or attestation is a finding and does not end the audit.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one client
export function openGateway(http: GatewayHttp) {
  async function ask<Value>(
    where: string,
    form: z.ZodType<Value>,
    bytesMax: number,
  ): Promise<Answer<Value>> {
    const parsed = form.safeParse(await http.fetchObject(where, { bytesMax }))
    if (parsed.success) return { ...parsed.data, where }
    const [issue] = parsed.error.issues
    const name = issue?.path.findLast((part) => typeof part === 'string') ?? 'the answer'
    throw expected(where, issue?.message.replace('$', name) ?? 'another answer')
  }

  async function askLog<Value extends z.infer<typeof OfLog>>(
    notary: string,
    rest: string,
    form: z.ZodType<Value>,
    bytesMax: number,
  ): Promise<Answer<Value>> {
    const answer = await ask(`/v1/log/${notary}/${rest}`, form, bytesMax)
    if (answer.notary !== notary) throw expected(answer.where, `an answer for ${notary}`)
    return answer
  }

  async function fetchHeadPage(
    notary: string,
    cursor: number | null,
    limit: number,
  ): Promise<HeadPage> {
    const query = `heads?limit=${limit}${cursor === null ? '' : `&cursor=${cursor}`}`
    const page = await askLog(notary, query, HeadPageForm, ANSWER_BYTES_MAX.heads)
    const isStuck =
      page.cursor !== null &&
      (page.cursor !== page.heads.at(-1)?.size || page.cursor <= (cursor ?? -1))
    if (isStuck) throw stuck(page, `the cursor ${page.cursor} does not lead further`)
    return page
  }

  return {
    /** Newest first. */
    async listLogs(): Promise<readonly ServedLog[]> {
      const found = new Map<string, ServedLog>()
      let cursor: string | null = null
      do {
        const after: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
        const path = `/v1/log?limit=100${after}`
        const page: Answer<z.infer<typeof LogsPage>> = await ask(
          path,
          LogsPage,
          ANSWER_BYTES_MAX.logs,
        )
        cursor = page.cursor
        const isNew = page.logs.some(({ notary }) => !found.has(notary))
        if (cursor !== null && !isNew) throw stuck(page, 'the page has no new log')
        for (const log of page.logs) {
          if (found.has(log.notary)) throw expected(path, `the log of ${log.notary} once`)
          found.set(log.notary, log)
        }
        if (found.size > LOGS_MAX) throw stuck(page, `expected at most ${LOGS_MAX} logs`)
      } while (cursor !== null)
      return [...found.values()]
    },

    async fetchLog(notary: string): Promise<ServedLog> {
      const path = `/v1/log/${notary}`
      const { where, ...log } = await ask(path, LogForm, ANSWER_BYTES_MAX.logs)
      if (log.notary === notary) return log
      throw expected(where, `the log of ${notary}`)
    },

    /** The enclave's statement about earlier logs, as received. Null if the gateway serves none. */
    async fetchBootStatement(notary: string): Promise<Json | null> {
      const bytesMax = ANSWER_BYTES_MAX.bootStatement
      try {
        const answer = await askLog(notary, 'boot-statement', BootStatementForm, bytesMax)
        return answer.statement ?? null
      } catch (fault) {
        // Older gateway versions do not have this path.
        if (fault instanceof GatewayFault && fault.status === 404) return null
        throw fault
      }
    },

    /** Heads with more leaves than `after` (null: all heads), in ascending order. */
    async *headPages(notary: string, after: number | null): AsyncGenerator<HeadPage> {
      let cursor = after
      do {
        const page = await fetchHeadPage(notary, cursor, PAGE_ENTRIES_MAX)
        yield page
        cursor = page.cursor
      } while (cursor !== null)
    },

    async fetchHead(notary: string, size: number): Promise<ServedHead | null> {
      const { heads } = await fetchHeadPage(notary, size === 0 ? null : size - 1, 1)
      return heads.find((head) => head.size === size) ?? null
    },

    /** Returns at least one leaf hash, from index `start` up to, but not including, `end`. */
    async fetchLeaves(notary: string, start: number, end: number): Promise<readonly Uint8Array[]> {
      const last = Math.min(end, start + PAGE_LEAVES_MAX)
      const query = `leaves?start=${start}&end=${last}`
      const answer = await askLog(notary, query, LeavesForm, ANSWER_BYTES_MAX.leaves)
      const { where, start: from, end: to, leaves } = answer
      if (from === start && to > start && to <= last && leaves.length === to - start) return leaves
      const message = `expected the leaves from ${start} on, got ${leaves.length} of ${from} to ${to}`
      throw new GatewayFault('leaf_missing', { where, message })
    },

    async fetchInclusion(
      notary: string,
      { index, size }: { readonly index: number; readonly size: number },
    ) {
      const query = `inclusion?index=${index}&size=${size}`
      const proof = await askLog(notary, query, InclusionForm, ANSWER_BYTES_MAX.proof)
      if (proof.index !== index || proof.size !== size)
        throw expected(proof.where, `a proof for index ${index} of ${size}`)
      return { root: proof.root, leafHash: proof.leaf_hash, path: proof.path }
    },

    async fetchConsistency(
      notary: string,
      from: number,
      to: number,
    ): Promise<readonly Uint8Array[]> {
      const query = `consistency?from=${from}&to=${to}`
      const proof = await askLog(notary, query, ConsistencyForm, ANSWER_BYTES_MAX.proof)
      if (proof.from === from && proof.to === to) return proof.path
      throw expected(proof.where, `a proof from ${from} to ${to}`)
    },

    /**
     * `next`: the index at which the next page starts. Null: there is no next page. Repeats a
     * request with half as many records if the answer is too large, because customers choose the
     * sizes of records. One record of an honest gateway always fits.
     */
    async fetchRecords(
      notary: string,
      start: number,
    ): Promise<{ readonly records: readonly Json[]; readonly next: number | null }> {
      for (let limit = PAGE_RECORDS_MAX; ; limit = Math.floor(limit / 2)) {
        const query = `records?start=${start}&limit=${limit}`
        try {
          const page = await askLog(notary, query, RecordsForm, ANSWER_BYTES_MAX.records)
          if (page.next !== null && page.next <= start)
            throw stuck(page, `next is ${page.next}, which does not lead further`)
          return page
        } catch (fault) {
          const isTooLarge = fault instanceof GatewayFault && fault.code === 'answer_too_large'
          if (!isTooLarge || limit === 1) throw fault
        }
      }
    },
  }
}

function expected(where: string, what: string): GatewayFault {
  return new GatewayFault('answer_invalid', { where, message: `expected ${what}` })
}

function stuck({ where }: { readonly where: string }, message: string): GatewayFault {
  return new GatewayFault('cursor_stuck', { where, message })
}
