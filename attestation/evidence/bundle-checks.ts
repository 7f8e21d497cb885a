import type { ErasureStatement } from '../erasure.ts'
import type { Check } from '../finding.ts'
import type { RecordWeights } from '../providers/evidence/model-weights.ts'
import type { ProviderFacts } from '../providers/evidence/verify-provider-evidence.ts'
import type { ProviderCheck } from '../providers/provider-checks.ts'
import type { Receipt } from '../receipt.ts'
import type { Release } from '../release/release.ts'
import type { RedactablePart } from './bundle.ts'
import type { BundleSource } from './bundle-source.ts'
import type { CheckTable, Judgement } from './verdict.ts'

export type BundleCheckName = keyof typeof BUNDLE_CHECKS

/**
 * All checks. Each value states when the verdict `verified` needs that check. A report has the
 * checks with `with a provider policy` only if there is evidence, or such a policy.
 */
export const BUNDLE_CHECKS = {
  /** The bundle has a known version and is well-formed. If not, no other check is made. */
  format: 'always',
  /** The receipt's `request_hash` is the hash of the request. */
  'request hash': 'always',
  /** The receipt's `response_hash` is the hash of the response. */
  'response hash': 'always',
  /** The evidence has the events of the stream, and they are those that the enclave gave out. */
  'stream hash': 'if made',
  /** The record's hash is the hash over the request hash and the response hash. */
  hash: 'always',
  /** The public key is a secp256k1 point. */
  'public key': 'always',
  /** The signature over the hash matches the record's public key, and has a low s. */
  signature: 'always',
  /** The receipt belongs to this completion. */
  receipt: 'always',
  /** The record's time is the second in which the completion finished, as the receipt states. */
  created_at: 'always',
  /** The attestation document names the key of the record. */
  'attestation key': 'always',
  /** The document was genuine when it was made: trusted root, chain, signature. */
  'attestation document': 'always',
  /** The completion finished while the document was valid. */
  'attestation time': 'always',
  /** The document is genuine and has the measurements that the caller expects. */
  measurements: 'always',
  /**
   * The document has the digest of this boot configuration. The configuration is for the log's
   * chain and contract.
   */
  'boot configuration': 'always',
  /** The caller expects this boot configuration. */
  'expected configuration': 'always',
  /** The boot configuration lists the receipt's provider with the same origin. */
  provider: 'always',
  /** The answer is whole, or the caller accepts the outcome that the receipt states. */
  outcome: 'always',
  /** The provider's evidence is for the origin in the receipt, and states the receipt's TLS key. */
  "provider's key": 'with a provider policy',
  /** The evidence of the provider passes the caller's policy at the receipt's time. */
  'provider attested': 'with a provider policy',
  /** The receipt is the leaf at its index in the notary's log. */
  'receipt in log': 'always',
  /** The notary signed the log's head, for this chain and contract. */
  'tree head': 'always',
  /**
   * The transaction's hash is the record's `tx_hash`, or is in the record's `reanchored`. The
   * detail shows which of the two.
   */
  'transaction hash': 'always',
  /** The transaction sends exactly this head and signature to this contract on this chain. */
  anchor: 'always',
  /** The header has the block's number and hash. */
  'block header': 'always',
  /** The block is not older than the completion and the document. Tolerance: ANCHOR_SKEW_MS. */
  'anchor time': 'always',
  /** The transactions root in the header covers the transaction at its index. */
  'transaction in block': 'always',
  /**
   * The receipts root in the header covers the transaction's receipt at the same index. This
   * receipt shows success and the contract's event for this head.
   */
  'anchor outcome': 'always',
  /** The chain has this block, with enough blocks after it. */
  'block on chain': 'with a chain',
  /** The caller states requests without an answer. Never passed. */
  'other requests': 'if made',
} as const satisfies CheckTable<string>

export type BundleCheck = Check<BundleCheckName>

export type BundleReport = Judgement<BundleCheckName> & {
  readonly checks: readonly BundleCheck[]
  /** The parts of the completion that the bundle leaves out. */
  readonly redacted: readonly RedactablePart[]
  /** The gateway's statement about parts that it erased. Not proved. Null without a statement. */
  readonly erased: ErasureStatement | null
  /** The stated source, not checked. Null if no source is stated, or if the bundle is malformed. */
  readonly source: BundleSource | null
  /** All checks of the provider's evidence. Empty if the bundle has no evidence. */
  readonly providerChecks: readonly ProviderCheck[]
  /** Null if the bundle is refused. */
  readonly facts: BundleFacts | null
}

/** The facts of a bundle that is not refused. A fact is null unless its check passed. */
export type BundleFacts = {
  readonly hash: string
  /** The account that signed. Its address also names the log: 0x, lower case. */
  readonly notary: string
  readonly index: number
  /**
   * How the answer ended. If it is not `complete`, the end is missing, and nothing proves who cut
   * the answer.
   */
  readonly outcome: Receipt['outcome']
  /** Name and origin in the enclave's table of providers. */
  readonly provider: { readonly name: string; readonly origin: string }
  /** The requested model, and the model in the answer (null if the answer names no model). */
  readonly model: Receipt['model']
  /** The second in which the completion finished, Unix seconds, by the enclave's clock. */
  readonly finishedAt: number
  /** Measurements of the enclave, 48 bytes each by index. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Null if the policy accepts the code by its measurements, not by a release. */
  readonly release: Release | null
  /** Indexes of the expected set that matched. Empty without one. Only index 0 names the image. */
  readonly matchedRegisters: readonly number[]
  /** If true, the host could read the enclave's key, and the enclave's code is not known. */
  readonly isDebugMode: boolean
  /**
   * Digest of the boot configuration, 32 bytes. BundlePolicy.configurations has the accepted
   * digests.
   */
  readonly configuration: Uint8Array
  /** The block that holds the anchor. Null if this is not proved. */
  readonly block: BlockFacts | null
  /** The completion was not made after this block. Null unless the chain has the block. */
  readonly anchoredIn: BlockFacts | null
  /** Null without evidence. */
  readonly providerEvidence: ProviderEvidenceFacts | null
}

export type ProviderEvidenceFacts = ProviderFacts & {
  /**
   * True if the evidence passed the caller's policy. False without a policy, because then any code
   * could have stated the keys.
   */
  readonly isAccepted: boolean
  readonly weights: RecordWeights
}

/** A block, as its header states it. Timestamp: Unix seconds, set by the chain. */
export type BlockFacts = {
  readonly number: number
  readonly hash: string
  readonly timestamp: number
}
