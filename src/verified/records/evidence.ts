import { setTimeout as sleep } from 'node:timers/promises'
import { encodeHex } from '../../../attestation/bytes.ts'
import {
  type BundleBlock,
  createBundle,
  type NoBlockReason,
} from '../../../attestation/evidence/bundle.ts'
import type { BundleSource } from '../../../attestation/evidence/bundle-source.ts'
import type {
  AnchorBlocksStore,
  AnchorEvidence,
  BlockPlace,
  BlockProof,
} from '../../chain/anchor-blocks-store.ts'
import type { BlockProofs } from '../../chain/block-proofs.ts'
import { BlockUnreadable } from '../../chain/read-block.ts'
import type { Logger } from '../../observability/logger.ts'
import { recordText } from './record-text.ts'
import type { RecordsStore, StoredRecord } from './records-store.ts'
import { scopeOfViewer, type Viewer } from './viewer.ts'

/**
 * How long a block is waited for whose proofs are not stored yet. After that the bundle is given
 * without it.
 */
const BLOCK_WAIT_MS = 3_000

/**
 * Calls for public evidence that wait for a block at once. Who comes beyond that is answered
 * without the block: callers without a key must not hold their places for as long as a chain takes.
 */
export const PUBLIC_WAITS_MAX = 4

/** Evidence bundles, as JSON texts (attestation/evidence/README.md). */
export type RecordEvidence = {
  /**
   * The bundle of the first record with this hash that the viewer may see, or null. It has no block
   * while the anchor is in none that it succeeded in, and when the block could not be read, in time
   * or at all; `no_block` says which.
   */
  find(hash: string, viewer: Viewer): Promise<string | null>
  /**
   * The same for anyone, of any account's record, redacted: hashes in the place of request and
   * response. Null too while PUBLIC_WAITS_MAX others wait for theirs.
   */
  findPublic(hash: string): Promise<string | null>
}

/** What evidence is made of beside records. */
type EvidenceSources = {
  readonly anchors: Pick<AnchorBlocksStore, 'findAnchor'>
  readonly proofs: Pick<BlockProofs, 'prove'>
  /** The chain whose blocks can be read. */
  readonly chainId: number
}

/** Evidence over its sources. `isOpen` as in the history. */
export function createEvidence(
  options: EvidenceSources & {
    readonly records: Pick<RecordsStore, 'findByHash' | 'findProof'>
    readonly isOpen: boolean
    /** What each bundle says of where it is from; null for nothing. */
    readonly source: BundleSource | null
    readonly log: Logger
    readonly waitMs?: number
  },
): RecordEvidence {
  const { records, anchors, proofs, chainId, isOpen, source, log } = options
  const { waitMs = BLOCK_WAIT_MS } = options
  const publicWait = boundWaits(PUBLIC_WAITS_MAX)

  async function findProof(
    anchor: AnchorEvidence,
    wait: Wait,
  ): Promise<BlockProof | NoBlockReason> {
    const { txHash, block, proof } = anchor
    if (proof !== null) return proof
    if (block === null) return 'not_mined'
    if (anchor.chainId !== chainId) return 'not_readable'
    return wait(() => readProof(block, txHash))
  }

  async function readProof(block: BlockPlace, txHash: string): Promise<BlockProof | NoBlockReason> {
    const found = proofs.prove(block.hash).then(
      (proven) => proven?.get(txHash) ?? 'not_read',
      (error: unknown) => {
        log.debug({ err: error, block: block.number }, 'block of an anchor could not be read')
        return error instanceof BlockUnreadable ? 'not_readable' : 'not_read'
      },
    )
    return Promise.race([found, sleep(waitMs, 'not_read' as const, { ref: false })])
  }

  async function bundleOf(record: StoredRecord | null, wait: Wait): Promise<string | null> {
    if (record === null) return null
    const anchor = await anchors.findAnchor(record.txHash)
    if (anchor === null) throw new Error(`expected the stored anchor ${record.txHash}`)
    const proof = await findProof(anchor, wait)
    const bundle = createBundle({
      record: JSON.parse(recordText(record)),
      bootConfiguration: JSON.parse(anchor.bootConfiguration),
      transaction: anchor.raw,
      block:
        typeof proof === 'string'
          ? { reason: proof, transaction: anchor.txHash }
          : describeProof(proof),
      source,
    })
    return JSON.stringify(bundle)
  }

  return {
    find: async (hash, viewer) =>
      bundleOf(await records.findByHash(hash, scopeOfViewer(viewer, isOpen)), (run) => run()),
    findPublic: async (hash) => bundleOf(await records.findProof(hash), publicWait),
  }
}

/** Runs what waits for a chain, or says at once that it was not run. */
type Wait = (run: () => Promise<BlockProof | NoBlockReason>) => Promise<BlockProof | NoBlockReason>

function boundWaits(waitsMax: number): Wait {
  let waits = 0
  return async (run) => {
    if (waits >= waitsMax) return 'not_read'
    waits++
    try {
      return await run()
    } finally {
      waits--
    }
  }
}

function describeProof(proof: BlockProof): BundleBlock {
  return {
    number: proof.number,
    hash: proof.hash,
    header: hexOf(proof.header),
    transaction_index: proof.transactionIndex,
    transaction_proof: proof.transactionProof.map(hexOf),
    receipt_proof: proof.receiptProof.map(hexOf),
  }
}

function hexOf(bytes: Uint8Array): string {
  return `0x${encodeHex(bytes)}`
}
