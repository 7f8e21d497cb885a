import type { ErasureStatement } from '../erasure.ts'
import type { Check } from '../finding.ts'
import type { Receipt } from '../receipt.ts'
import type { Release } from '../release/release.ts'
import type { RedactablePart } from './bundle.ts'
import type { BundleSource } from './bundle-source.ts'
import type { CheckTable, Judgement } from './verdict.ts'

/** What a bundle is checked for, in the order of the report. */
export type BundleCheckName = keyof typeof BUNDLE_CHECKS

/** Every check, and when `verified` needs it. */
export const BUNDLE_CHECKS = {
  /**
   * The bundle is one of version 1, every member in its one form. When it fails nothing else is
   * checked.
   */
  format: 'always',
  /** The request hashes to the receipt's request_hash. */
  'request hash': 'always',
  /** The response hashes to the receipt's response_hash. */
  'response hash': 'always',
  /** Both hash to the record's hash. */
  hash: 'always',
  /** A secp256k1 point. */
  'public key': 'always',
  /** By that key, over the hash, with low s. */
  signature: 'always',
  /** The receipt is of this completion. */
  receipt: 'always',
  /** The second in which the receipt says the completion finished. */
  created_at: 'always',
  /** The attestation document names that key. */
  'attestation key': 'always',
  /** The document is genuine: trusted root, chain, signature; at the time it was made. */
  'attestation document': 'always',
  /** The completion finished while the document was valid. */
  'attestation time': 'always',
  /** The document, when it is genuine, has the measurements that the caller expects. */
  measurements: 'always',
  /**
   * The document names the digest of this boot configuration, which is for the log's chain and
   * contract.
   */
  'boot configuration': 'always',
  /** It is one that the caller expects. */
  'expected configuration': 'always',
  /** The boot configuration has the receipt's provider at that origin. */
  provider: 'always',
  /** The answer is whole, or the caller accepts the outcome that the receipt states. */
  outcome: 'always',
  /** The receipt is the leaf at its index of the notary's log. */
  'receipt in log': 'always',
  /** The notary signed the log's head, for that chain and contract. */
  'tree head': 'always',
  /**
   * The transaction's hash is the record's tx_hash, or one of its reanchored; the detail says
   * which.
   */
  'transaction hash': 'always',
  /**
   * The transaction brings exactly this head with this signature to that contract on that chain.
   */
  anchor: 'always',
  /** The header has the block's number and hash. */
  'block header': 'always',
  /**
   * The block is not older than the completion and the attestation document, but for
   * ANCHOR_SKEW_MS.
   */
  'anchor time': 'always',
  /** The transaction is under the header's transactions root, at its index. */
  'transaction in block': 'always',
  /**
   * The receipt at that index, under the header's receipts root, shows success and the contract's
   * event for this head.
   */
  'anchor outcome': 'always',
  /** The chain has this block, deep enough. */
  'block on chain': 'with a chain',
} as const satisfies CheckTable<string>

/** One check's outcome. */
export type BundleCheck = Check<BundleCheckName>

/** Outcome of verifyBundle. */
export type BundleReport = Judgement<BundleCheckName> & {
  readonly checks: readonly BundleCheck[]
  /** Parts of the completion that are not there. */
  readonly redacted: readonly RedactablePart[]
  /** What its gateway states of parts that it erased, which nothing binds; null for nothing. */
  readonly erased: ErasureStatement | null
  /**
   * Where the bundle says that it is from: a hint for its reader, which nothing binds and no check
   * reads. Null for nothing, and of a bundle that is not of its form.
   */
  readonly source: BundleSource | null
  /** What the bundle says, as far as its checks passed; null when it is invalid. */
  readonly facts: BundleFacts | null
}

/** What a bundle that is not invalid says. What is not shown by a check that passed is null. */
export type BundleFacts = {
  readonly hash: string
  /** The signing account and log: 0x, lower case. */
  readonly notary: string
  readonly index: number
  /**
   * How the answer ended. When it is not `complete`, the end is missing; who cut it is not shown.
   */
  readonly outcome: Receipt['outcome']
  /** Who answered: its name and origin in the enclave's table. */
  readonly provider: { readonly name: string; readonly origin: string }
  /** The model that was asked for, and the one that the answer names; null when it names none. */
  readonly model: Receipt['model']
  /** The second in which the completion finished, Unix seconds, by the enclave's clock. */
  readonly finishedAt: number
  /** Measurements of the enclave, 48 bytes each by index. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** The release of the policy that those are of; null when none was expected, or a set matched. */
  readonly release: Release | null
  /** Digest of the boot configuration, 32 bytes, for BundlePolicy.configurations. */
  readonly configuration: Uint8Array
  /** The block that the bundle brings, with the anchor in it; null when it brings no whole one. */
  readonly block: BlockFacts | null
  /** Not after: that block, when the chain has it. */
  readonly anchoredIn: BlockFacts | null
}

/** A block by its header. Timestamp: Unix seconds, the chain's. */
export type BlockFacts = {
  readonly number: number
  readonly hash: string
  readonly timestamp: number
}
