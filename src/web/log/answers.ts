import { decodeHex, encodeHex, encodeUtf8, HASH_BYTES } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { formsOf } from '#attestation/json/forms.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type {
  ConsistencyReply,
  HeadReply,
  InclusionReply,
  LogReply,
} from '../../verified/logs/log-replies.ts'
import { askEvidence, OwnGatewayFault } from '../kit/gateway.ts'

/*
 * The gateway may lie about its logs, so every member is checked. All functions throw
 * OwnGatewayFault, and FormatError `bad_answer` with the name of the wrong member.
 */

const { arrayOf, countOf, hexOf, invalid, objectOf, textOf } = formsOf(
  'bad_answer',
  "the gateway's answer: ",
)

/** Heads per request. */
const HEADS_SHOWN = 10

export type Head = Pick<HeadReply, 'size' | 'root' | 'signature' | 'created_at' | 'anchor'>

export type DescribedLog = Omit<LogReply, 'head' | 'boot_configuration'> & {
  readonly head: Head | null
  readonly boot_configuration: JsonObject
}

/** The notary signs its heads for this chain and contract. */
export function domainOf({ chain_id: chainId, contract }: DescribedLog): LogDomain {
  return { chainId, contract }
}

/** SHA-256 in hex. A check of the configuration holds only for this digest. */
export function configurationDigestOf(log: DescribedLog): string {
  return encodeHex(digestBootConfiguration(log.boot_configuration))
}

/**
 * Reads at most `LOGS_MAX` logs. `isWhole`: there are no more logs. `faults`: why some logs in the
 * list cannot be read.
 */
export async function readLogs(signal: AbortSignal): Promise<{
  readonly logs: readonly DescribedLog[]
  readonly faults: readonly FormatError[]
  readonly isWhole: boolean
}> {
  const logs: DescribedLog[] = []
  const faults: FormatError[] = []
  let cursor: string | null = null
  // Limits the number of requests, because the gateway may send any number of empty pages.
  let asked = 0
  do {
    const after: string = cursor === null ? '' : `&cursor=${cursor}`
    const json = objectOf(
      await askEvidence(`/v1/log?limit=${LOGS_ASKED}${after}`, { signal }),
      'it',
    )
    for (const one of arrayOf(json.logs, 'logs', { min: 0, max: LOGS_ASKED }))
      try {
        logs.push(parseLog(one))
      } catch (fault) {
        if (!(fault instanceof FormatError)) throw fault
        faults.push(fault)
      }
    cursor = json.cursor === null ? null : addressOf(json.cursor, 'cursor')
    asked += 1
  } while (cursor !== null && asked < LOGS_MAX / LOGS_ASKED)
  return { logs, faults, isWhole: cursor === null }
}

const LOGS_MAX = 500
const LOGS_ASKED = 100

/** Null when this gateway has no log from this notary. */
export async function readLog(notary: string, signal: AbortSignal): Promise<DescribedLog | null> {
  try {
    const log = parseLog(await askEvidence(`/v1/log/${notary}`, { signal }))
    if (log.notary !== notary) throw invalid('notary', 'the requested notary')
    return log
  } catch (fault) {
    if (fault instanceof OwnGatewayFault && fault.status === 404) return null
    throw fault
  }
}

/** Heads, newest first. `attestations` attest the states of these heads. */
export type HeadPage = {
  readonly heads: readonly Head[]
  /** Ordered by size. Not parsed yet: verifyHeadAttestation parses them. */
  readonly attestations: readonly Json[]
  /** The next page has heads with fewer leaves. Null when there is no next page. */
  readonly cursor: number | null
}

/** Reads the newest heads, or the newest with fewer leaves than `below`. */
export async function readHeads(
  notary: string,
  { below, signal }: { readonly below: number | null; readonly signal: AbortSignal },
): Promise<HeadPage> {
  const before = below === null ? '' : `&cursor=${below}`
  const path = `/v1/log/${notary}/heads?order=desc&limit=${HEADS_SHOWN}${before}`
  const json = objectOf(await askEvidence(path, { signal }), 'it')
  return {
    heads: arrayOf(json.heads, 'heads', { min: 0, max: HEADS_SHOWN }).map(parseHead),
    attestations: arrayOf(json.attestations, 'attestations'),
    cursor: json.cursor === null ? null : countOf(json.cursor, 'cursor'),
  }
}

/** The head with exactly `size` leaves, or null. */
export async function readHeadAt(
  notary: string,
  size: number,
  signal: AbortSignal,
): Promise<Head | null> {
  if (size === 0) return null
  const [head] = await readHeadsAbove(notary, { above: size - 1, limit: 1, signal })
  return head?.size === size ? head : null
}

/** The first heads with more than `above` leaves, ordered by size. */
export async function readHeadsAbove(
  notary: string,
  {
    above,
    limit,
    signal,
  }: { readonly above: number; readonly limit: number; readonly signal: AbortSignal },
): Promise<readonly Head[]> {
  const path = `/v1/log/${notary}/heads?limit=${limit}&cursor=${above}`
  const json = objectOf(await askEvidence(path, { signal }), 'it')
  return arrayOf(json.heads, 'heads', { min: 0, max: limit }).map(parseHead)
}

/** `end` is not included. */
export type LeafRange = { readonly start: number; readonly end: number }

/** Hashes of leaves, hex, in order. */
export async function readLeaves(
  notary: string,
  { start, end }: LeafRange,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const path = `/v1/log/${notary}/leaves?start=${start}&end=${end}`
  const json = objectOf(await askEvidence(path, { signal }), 'it')
  const count = { min: end - start, max: end - start }
  return arrayOf(json.leaves, 'leaves', count).map((hash) => hexOf(hash, 'leaves', HASH_BYTES))
}

/**
 * Reads only leaves whose completions the API key may read. `hash`: the hash of the leaf, computed
 * from the receipt. `completion`: the hash of the completion, from the receipt.
 */
export async function readOwnLeaves(
  notary: string,
  { start, end }: LeafRange,
  { key, signal }: { readonly key: string; readonly signal: AbortSignal },
): Promise<readonly { readonly hash: string; readonly completion: string }[]> {
  const path = `/v1/log/${notary}/records?start=${start}&limit=${end - start}`
  const json = objectOf(await askEvidence(path, { key, signal }), 'it')
  return arrayOf(json.records, 'records', { min: 0, max: end - start }).map((record) => {
    const receipt = objectOf(objectOf(record, 'a record').receipt, 'receipt')
    return {
      hash: encodeHex(hashLeaf(encodeUtf8(canonicalizeJson(receipt)))),
      completion: hexOf(receipt.hash, 'hash', HASH_BYTES),
    }
  })
}

/** Reads the proof that the log with `to` leaves begins with the log with `from` leaves. */
export async function readConsistency(
  notary: string,
  {
    from,
    to,
    signal,
  }: { readonly from: number; readonly to: number; readonly signal: AbortSignal },
): Promise<readonly Uint8Array[]> {
  const path = `/v1/log/${notary}/consistency?from=${from}&to=${to}`
  const json: Named<ConsistencyReply> = objectOf(await askEvidence(path, { signal }), 'it')
  return parsePath(json.path)
}

/** Reads the hash of a leaf and its path to the root over `size` leaves. */
export async function readInclusion(
  notary: string,
  {
    index,
    size,
    signal,
  }: {
    readonly index: number
    readonly size: number
    readonly signal: AbortSignal
  },
): Promise<{ readonly leafHash: Uint8Array; readonly path: readonly Uint8Array[] }> {
  const path = `/v1/log/${notary}/inclusion?index=${index}&size=${size}`
  const json: Named<InclusionReply> = objectOf(await askEvidence(path, { signal }), 'it')
  return {
    leafHash: decodeHex(hexOf(json.leaf_hash, 'leaf_hash', HASH_BYTES)),
    path: parsePath(json.path),
  }
}

/** The enclave's statement about earlier logs, unparsed, or null. */
export async function readBootStatement(
  notary: string,
  signal: AbortSignal,
): Promise<{ readonly statement: JsonObject; readonly heads: readonly BootHead[] } | null> {
  const json = objectOf(await askEvidence(`/v1/log/${notary}/boot-statement`, { signal }), 'it')
  if (json.statement === null) return null
  const statement = objectOf(json.statement, 'statement')
  return {
    statement,
    heads: arrayOf(statement.heads, 'statement.heads', { min: 0, max: 1_000 }).map((json, at) => {
      const head = objectOf(json, `statement.heads.${at}`)
      return {
        notary: addressOf(head.notary, 'notary'),
        size: countOf(head.size, 'size'),
        root: hexOf(head.root, 'root', HASH_BYTES),
        signature: signatureOf(head.signature),
      }
    }),
  }
}

/** An enclave that runs now, according to the gateway. */
export type ServedEnclave = {
  readonly notary: string
  readonly status: 'in_use' | 'draining'
  /** The current attestation document, standard base64, unparsed. */
  readonly attestation: string
}

export async function readEnclaves(signal: AbortSignal): Promise<readonly ServedEnclave[]> {
  const json = objectOf(await askEvidence('/v1/notaries', { signal }), 'it')
  return arrayOf(json.notaries, 'notaries', { min: 0, max: 1_000 }).map((json) => {
    const enclave = objectOf(json, 'notaries')
    return {
      notary: addressOf(enclave.notary, 'notary'),
      status: enclave.status === 'draining' ? 'draining' : 'in_use',
      attestation: textOf(enclave.attestation, 'attestation'),
    }
  })
}

/** Requests a new document with `nonce` (hex). Returns standard base64, unparsed. */
export async function readFreshDocument(
  notary: string,
  { nonce, signal }: { readonly nonce: string; readonly signal: AbortSignal },
): Promise<string> {
  const path = `/v1/attestation?notary=${notary}&nonce=${nonce}`
  return textOf(objectOf(await askEvidence(path, { signal }), 'it').attestation, 'attestation')
}

/** The members are not parsed yet. */
type Named<Reply> = { readonly [Name in keyof Reply]?: Json }

const ADDRESS = { form: /^0x[0-9a-f]{40}$/, expectation: '0x and 40 lower-case hex digits' }
const HASH = { form: /^0x[0-9a-f]{64}$/, expectation: '0x and 64 lower-case hex digits' }
const SIGNATURE = { form: /^0x[0-9a-f]{130}$/, expectation: '0x and 130 lower-case hex digits' }
const PUBLIC_KEY = SIGNATURE

function addressOf(json: Json | undefined, name: string): string {
  return textOf(json, name, ADDRESS)
}

function signatureOf(json: Json | undefined): string {
  return textOf(json, 'signature', SIGNATURE)
}

function parseLog(json: Json): DescribedLog {
  const log: Named<LogReply> = objectOf(json, 'a log')
  return {
    notary: addressOf(log.notary, 'notary'),
    public_key: textOf(log.public_key, 'public_key', PUBLIC_KEY),
    chain_id: countOf(log.chain_id, 'chain_id'),
    contract: addressOf(log.contract, 'contract'),
    boot_configuration: objectOf(log.boot_configuration, 'boot_configuration'),
    created_at: countOf(log.created_at, 'created_at'),
    size: countOf(log.size, 'size'),
    root: hexOf(log.root, 'root', HASH_BYTES),
    head: log.head === null || log.head === undefined ? null : parseHead(log.head),
    attestation_sha256:
      log.attestation_sha256 === null
        ? null
        : hexOf(log.attestation_sha256, 'attestation_sha256', HASH_BYTES),
  }
}

function parseHead(json: Json): Head {
  const head: Named<HeadReply> = objectOf(json, 'a head')
  const anchor: Named<HeadReply['anchor']> = objectOf(head.anchor, 'anchor')
  return {
    size: countOf(head.size, 'size'),
    root: hexOf(head.root, 'root', HASH_BYTES),
    signature: signatureOf(head.signature),
    created_at: countOf(head.created_at, 'created_at'),
    anchor: {
      tx_hash: textOf(anchor.tx_hash, 'tx_hash', HASH),
      state: stateOf(anchor.state),
      block_number:
        anchor.block_number === null ? null : countOf(anchor.block_number, 'block_number'),
      block_hash: anchor.block_hash === null ? null : textOf(anchor.block_hash, 'block_hash', HASH),
    },
  }
}

const STATES = ['pending', 'mined', 'confirmed', 'reverted'] as const

function stateOf(json: Json | undefined): Head['anchor']['state'] {
  const state = STATES.find((one) => one === json)
  if (state === undefined) throw invalid('state', `one of ${STATES.join(', ')}`)
  return state
}

function parsePath(json: Json | undefined): readonly Uint8Array[] {
  return arrayOf(json, 'path', { min: 0, max: 64 }).map((hash, at) =>
    decodeHex(hexOf(hash, `path.${at}`, HASH_BYTES)),
  )
}
