import { hash } from 'node:crypto'
import { encodeUtf8, equalBytes } from '#attestation/bytes.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import type { Receipt } from '#attestation/receipt.ts'
import type { NoticeCompletion } from '#enclave/protocol/enclave-api.ts'
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

/** Callers may ask for a record after its commit, so some published heads stay in memory. */
const HEADS_KEPT = 16

/** An enclave renews its document every hour by default, so few are in use at a time. */
const DOCUMENTS_KEPT = 4

type KeptHead = {
  readonly head: CommittedHead
  readonly recordUnder: ReturnType<typeof recordsUnder>
}

/**
 * Returns records that another gateway committed. With a published head and the enclave's
 * completion, the database is not read. With the head alone, only the records' rows are read. A
 * record under an older head is read with its head and proof.
 */
export class CommittedRecords {
  readonly #records: Pick<RecordsStore, 'findByIndexes' | 'findHeadless'>
  /** Standard base64, by digest. */
  readonly #documents = new LruMap<string, string>(DOCUMENTS_KEPT)
  #heads: readonly KeptHead[] = []
  /** The notary of all heads in `#heads`. */
  #notary: string | null = null

  constructor(records: Pick<RecordsStore, 'findByIndexes' | 'findHeadless'>) {
    this.#records = records
  }

  /** Throws FormatError when the text is not a valid head. */
  keep(notary: Notary, size: number, given: EncodedHead): void {
    const head = decodeHead(size, given)
    const kept = { head, recordUnder: recordsUnder(head, notary) }
    const others = this.#notary === notary.address ? this.#heads : []
    this.#notary = notary.address
    this.#heads = [kept, ...others].slice(0, HEADS_KEPT)
  }

  /** Skips leaves that are not committed. Throws the store's errors. */
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
   * Makes a record without the database. Null if the head or the completion is missing, or if they
   * do not match.
   */
  #prove({ index, given }: AwaitedLeaf): AnsweredRecord | null {
    const kept = this.#headOf(index)
    const attestation = given && this.#documents.get(given.document)
    const leaf = kept && leafOf(kept.head, index)
    if (!given || !kept || !attestation || !leaf) return null
    const { response, receipt, signature } = given
    // If the leaf matches, the gateway that committed the leaf has checked this receipt.
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

function without(
  leaves: readonly AwaitedLeaf[],
  records: readonly AnsweredRecord[],
): readonly AwaitedLeaf[] {
  if (records.length === 0) return leaves
  const found = new Set(records.map(({ index }) => index))
  return leaves.filter(({ index }) => !found.has(index))
}
