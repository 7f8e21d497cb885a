import { setTimeout as sleep } from 'node:timers/promises'
import { encodeHex } from '#attestation/bytes.ts'
import { type BundleBlock, createBundle, type NoBlockReason } from '#attestation/evidence/bundle.ts'
import type { BundleSource } from '#attestation/evidence/bundle-source.ts'
import type { Receipt } from '#attestation/receipt.ts'
import type {
  AnchorBlocksStore,
  AnchorEvidence,
  BlockPlace,
  BlockProof,
} from '../../chain/anchor-blocks-store.ts'
import type { BlockProofs } from '../../chain/block-proofs.ts'
import { BlockUnreadable } from '../../chain/read-block.ts'
import type { Logger } from '../../observability/logger.ts'
import type { ProviderEvidenceStore } from '../../providers/provider-evidence-store.ts'
import { recordText } from './record-text.ts'
import type { RecordsStore, StoredRecord } from './records-store.ts'
import { scopeOfViewer, type Viewer } from './viewer.ts'

/** If a block's proofs are not stored within this time, the bundle has no block. */
const BLOCK_WAIT_MS = 3_000

/**
 * Further public calls do not wait for a block. Without this limit, public calls could fill
 * EVIDENCE_READS_MAX while a chain is slow.
 */
export const PUBLIC_WAITS_MAX = 4

/** JSON texts of bundles (attestation/evidence/formats.md). */
export type RecordEvidence = {
  /**
   * The bundle of the first record with this hash that the viewer may see. If the bundle has no
   * block, `no_block` says why: the anchor has not succeeded yet, or the block could not be read.
   */
  find(hash: string, viewer: Viewer): Promise<string | null>
  /**
   * Finds records of all accounts for any caller, so the bundle has hashes in place of request and
   * response. If PUBLIC_WAITS_MAX other calls already wait for a block, the bundle has no block.
   */
  findPublic(hash: string): Promise<string | null>
}

type EvidenceSources = {
  readonly anchors: Pick<AnchorBlocksStore, 'findAnchor'>
  readonly proofs: Pick<BlockProofs, 'prove'>
  /** The chain whose blocks can be read. */
  readonly chainId: number
}

/** `isOpen` is as in createHistory. */
export function createEvidence(
  options: EvidenceSources & {
    readonly records: Pick<RecordsStore, 'findByHash' | 'findProof'>
    readonly providers: Pick<ProviderEvidenceStore, 'findFor'>
    readonly isOpen: boolean
    /** Null when the operator did not configure a source. */
    readonly source: BundleSource | null
    readonly log: Logger
    readonly waitMs?: number
  },
): RecordEvidence {
  const { records, anchors, proofs, providers, chainId, isOpen, source, log } = options
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

  /**
   * Finds evidence that contains the receipt's TLS key and was fetched before the answer finished.
   */
  async function findProviderEvidence({ receipt }: StoredRecord): Promise<Uint8Array | null> {
    const { provider, finished_at: atMs }: Receipt = JSON.parse(receipt)
    if (provider.tls === null) return null
    const { origin, tls } = provider
    return await providers.findFor({ origin, spkiSha256: tls.spki_sha256, atMs })
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
      providerEvidence: await findProviderEvidence(record),
    })
    return JSON.stringify(bundle)
  }

  return {
    find: async (hash, viewer) =>
      bundleOf(await records.findByHash(hash, scopeOfViewer(viewer, isOpen)), (run) => run()),
    findPublic: async (hash) => bundleOf(await records.findProof(hash), publicWait),
  }
}

/** Returns `not_read` at once if too many calls wait already. */
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
