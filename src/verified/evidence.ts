import { setTimeout as sleep } from 'node:timers/promises'
import { encodeHex } from '../../attestation/bytes.ts'
import { type BundleBlock, createBundle } from '../../attestation/evidence/bundle.ts'
import type {
  AnchorBlocksStore,
  AnchorEvidence,
  BlockPlace,
  BlockProof,
} from '../chain/anchor-blocks-store.ts'
import type { BlockProofs } from '../chain/block-proofs.ts'
import { BlockUnreadable } from '../chain/read-block.ts'
import type { Logger } from '../observability/logger.ts'
import { recordText } from './record-text.ts'
import type { RecordsStore, StoredRecord } from './records-store.ts'
import { scopeOfViewer, type Viewer } from './viewer.ts'

/**
 * How long a block is waited for whose proofs are not stored yet. After that the bundle is given
 * without it.
 */
const BLOCK_WAIT_MS = 3_000

/**
 * A block that cannot be encoded is not asked for again so long: whoever asks for the same bundle
 * again and again must not have its megabytes fetched each time.
 */
export const UNREADABLE_MS = 60_000
/** So many such blocks are remembered; then all are forgotten. */
const UNREADABLE_BLOCKS_MAX = 1_000

/**
 * Calls for public evidence that wait for a block at once. Who comes beyond that is answered
 * without the block: callers without a key must not hold their places for as long as a chain takes.
 */
export const PUBLIC_WAITS_MAX = 4

/** Evidence bundles, as JSON texts (attestation/evidence/README.md). */
export type Evidence = {
  /**
   * The bundle of the first record with this hash that the viewer may see, or null. Its `block` is
   * null while the anchor is in no block that it succeeded in, and when the block could not be read
   * in time.
   */
  find(hash: string, viewer: Viewer): Promise<string | null>
  /**
   * The same for everybody, of any account's record, redacted: hashes in the place of request and
   * response. Its `block` is also null while PUBLIC_WAITS_MAX others wait for theirs.
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
    readonly log: Logger
    readonly waitMs?: number
    /** Milliseconds, monotonic; by default performance.now. */
    readonly now?: () => number
  },
): Evidence {
  const { records, anchors, proofs, chainId, isOpen, log, waitMs = BLOCK_WAIT_MS } = options
  const publicWait = boundWaits(PUBLIC_WAITS_MAX)
  const unreadable = rememberBlocks(options.now ?? (() => performance.now()))

  async function findProof(anchor: AnchorEvidence, wait: Wait): Promise<BlockProof | null> {
    const { txHash, block, proof } = anchor
    if (proof !== null || block === null || anchor.chainId !== chainId) return proof
    if (unreadable.has(block.hash)) return null
    return wait(() => readProof(block, txHash))
  }

  async function readProof(block: BlockPlace, txHash: string): Promise<BlockProof | null> {
    const found = proofs.prove(block.hash).catch((error: unknown) => {
      if (error instanceof BlockUnreadable) unreadable.add(block.hash)
      log.debug({ err: error, block: block.number }, 'block of an anchor could not be read')
      return null
    })
    const proven = await Promise.race([found, sleep(waitMs, null, { ref: false })])
    return proven?.get(txHash) ?? null
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
      block: proof && describeProof(proof),
    })
    return JSON.stringify(bundle)
  }

  return {
    find: async (hash, viewer) =>
      bundleOf(await records.findByHash(hash, scopeOfViewer(viewer, isOpen)), (run) => run()),
    findPublic: async (hash) => bundleOf(await records.findProof(hash), publicWait),
  }
}

/** Runs what waits for a chain, or gives null at once. */
type Wait = (run: () => Promise<BlockProof | null>) => Promise<BlockProof | null>

function boundWaits(waitsMax: number): Wait {
  let waits = 0
  return async (run) => {
    if (waits >= waitsMax) return null
    waits++
    try {
      return await run()
    } finally {
      waits--
    }
  }
}

/** Blocks that were found unreadable within UNREADABLE_MS. */
function rememberBlocks(now: () => number) {
  const foundAtMs = new Map<string, number>()
  return {
    has: (hash: string) =>
      now() - (foundAtMs.get(hash) ?? Number.NEGATIVE_INFINITY) < UNREADABLE_MS,
    add(hash: string): void {
      if (foundAtMs.size >= UNREADABLE_BLOCKS_MAX) foundAtMs.clear()
      foundAtMs.set(hash, now())
    },
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
