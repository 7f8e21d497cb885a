import { PUBLIC_KEY_BYTES, SIGNATURE_BYTES } from '../../../attestation/account.ts'
import { HASH_BYTES } from '../../../attestation/bytes.ts'
import { REANCHORED_MAX } from '../../../attestation/evidence/bundle.ts'
import { type Json, type JsonObject, memberOf } from '../../../attestation/json/value.ts'
import { PROOF_HASHES_MAX } from '../../../attestation/merkle/verify.ts'
import type { LogDomain } from '../../../attestation/tree-head.ts'
import { readAnswer } from './answer-forms.ts'

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
