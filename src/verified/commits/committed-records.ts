import { hash } from 'node:crypto'
import { encodeUtf8, equalBytes } from '../../../attestation/bytes.ts'
import { hashLeaf } from '../../../attestation/merkle/hash.ts'
import type { Receipt } from '../../../attestation/receipt.ts'
import type { NoticeCompletion } from '../../../enclave/protocol/enclave-api.ts'
import { LruMap } from '../../runtime/lru-map.ts'
import type { AnsweredRecord, RecordsStore } from '../records/records-store.ts'
import type { Notary } from './check-batch.ts'
import type { AwaitedLeaf } from './commit-waiters.ts'
import {
  type CommittedHead,
  decodeHead,
  type EncodedHead,
  leafOf,
  recordsUnder,
} from './committed-heads.ts'

/** Heads that are kept in memory, for callers who begin to wait after the commit was published. */
const HEADS_KEPT = 16

/**
 * Attestation documents that are kept in memory. An enclave renews its document every few minutes.
 */
const DOCUMENTS_KEPT = 4

type KeptHead = {
  readonly head: CommittedHead
  readonly recordUnder: ReturnType<typeof recordsUnder>
}

/**
 * Returns records that another gateway committed. The database is not read if the head was
 * published and the enclave sent the completion. With the head alone, only the rows of the records
 * are read. A record under an older head is read with its head and proof.
 */
export class CommittedRecords {
  readonly #records: Pick<RecordsStore, 'findByIndexes' | 'findHeadless'>
  /** Documents of the records that were read: standard base64, by digest. */
  readonly #documents = new LruMap<string, string>(DOCUMENTS_KEPT)
  #heads: readonly KeptHead[] = []
  /** The notary that the kept heads belong to. */
  #notary: string | null = null

  constructor(records: Pick<RecordsStore, 'findByIndexes' | 'findHeadless'>) {
    this.#records = records
  }

  /** Stores a published head in memory. Throws FormatError when it is not a valid head of a log. */
  keep(notary: Notary, size: number, given: EncodedHead): void {
    const head = decodeHead(size, given)
    const kept = { head, recordUnder: recordsUnder(head, notary) }
    const others = this.#notary === notary.address ? this.#heads : []
    this.#notary = notary.address
    this.#heads = [kept, ...others].slice(0, HEADS_KEPT)
  }

  /** Returns the committed records of these leaves. Throws what the store throws. */
  async read(notary: string, leaves: readonly AwaitedLeaf[]): Promise<readonly AnsweredRecord[]> {
    const isOfHeads = notary === this.#notary
    const proven = isOfHeads ? leaves.flatMap((leaf) => this.#prove(leaf) ?? []) : []
    const unproven = without(leaves, proven)
    const underHeads = unproven.filter(({ index }) => isOfHeads && this.#headOf(index))
    const { findHeadless, findByIndexes } = this.#records
    const light = await findLeaves(findHeadless, notary, underHeads)
    const read = light.flatMap((record) => this.#headOf(record.index)?.recordUnder(record) ?? [])
    const whole = await findLeaves(findByIndexes, notary, without(unproven, read))
    this.#learnDocuments(leaves, [...read, ...whole])
    return [...proven, ...read, ...whole]
  }

  #headOf(index: number): KeptHead | undefined {
    return this.#heads.find(({ head }) => head.before.size <= index && index < head.head.size)
  }

  /**
   * Makes the record from the completion of the enclave and the published head. Returns null when
   * one is missing, or when the head does not cover the completion.
   */
  #prove({ index, given }: AwaitedLeaf): AnsweredRecord | null {
    const kept = this.#headOf(index)
    const attestation = given && this.#documents.get(given.document)
    const leaf = kept && leafOf(kept.head, index)
    if (!given || !kept || !attestation || !leaf) return null
    const { response, receipt, signature } = given
    // Equal hashes show that the other gateway has checked this same receipt.
    if (!equalBytes(leaf, hashLeaf(encodeUtf8(receipt)))) return null
    const stated = JSON.parse(receipt) as Receipt
    if (hash('sha256', response) !== stated.response_hash) return null
    const { hash: completionHash, outcome } = stated
    const facts = { index, hash: completionHash, outcome, usage: null }
    return kept.recordUnder({ ...facts, response, receipt, signature, attestation })
  }

  #learnDocuments(leaves: readonly AwaitedLeaf[], records: readonly AnsweredRecord[]): void {
    const givenOf = new Map<number, NoticeCompletion | null>(
      leaves.map((leaf) => [leaf.index, leaf.given]),
    )
    for (const { index, attestation } of records) {
      const digest = givenOf.get(index)?.document
      if (digest === undefined || this.#documents.get(digest) !== undefined) continue
      if (hash('sha256', Buffer.from(attestation, 'base64')) === digest)
        this.#documents.set(digest, attestation)
    }
  }
}

/** Reads the records of these leaves. Without leaves, it does not call the store. */
async function findLeaves<Found>(
  find: (notary: string, indexes: readonly number[]) => Promise<readonly Found[]>,
  notary: string,
  leaves: readonly AwaitedLeaf[],
): Promise<readonly Found[]> {
  if (leaves.length === 0) return []
  return find(
    notary,
    leaves.map(({ index }) => index),
  )
}

/** Returns the leaves that have no record in `records`. */
function without(
  leaves: readonly AwaitedLeaf[],
  records: readonly AnsweredRecord[],
): readonly AwaitedLeaf[] {
  if (records.length === 0) return leaves
  const found = new Set(records.map(({ index }) => index))
  return leaves.filter(({ index }) => !found.has(index))
}
