/** README.md says what each check proves. */

export { addressOf, completionDigest } from './account.ts'
export { decodeBase64, decodeHex, encodeBase64, encodeHex } from './bytes.ts'
export {
  compareExchange,
  completeRecord,
  type ExchangeCheck,
  type ExchangeCheckName,
  type KeptAnswer,
  type KeptExchange,
  keptResponseOf,
} from './compare-exchange.ts'
export { type CompletionHash, PROOF_MEMBERS, stripUnsetMembers } from './completion-hash.ts'
export { type SignatureFacts, verifyCompletionSignature } from './completion-signature.ts'
export {
  type CredentialDemand,
  type Demands,
  demandsOf,
  digestCredential,
  type SessionPlace,
} from './demands.ts'
export {
  addChunk,
  assembleCompletion,
  emptyAssembly,
  finishAssembly,
} from './dialects/chat/assemble-completion.ts'
export type { Assembly } from './dialects/chat/check-chunk.ts'
export type { DialectEvent } from './dialects/dialect.ts'
export { splitNamedEvents } from './dialects/event-text.ts'
export { PORTABLE_DIGESTS } from './eif/digests.ts'
export { EifError } from './eif/eif-error.ts'
export { type EifReport, measureEif } from './eif/measure-eif.ts'
export {
  ENCRYPTION_KEY_SECONDS_MAX,
  type EncryptionKey,
  encryptionKeyDigest,
} from './encryption-key.ts'
export { type ErasureStatement, type StatedAbsence, statedAbsence } from './erasure.ts'
export { FormatError, ProofError } from './errors.ts'
export {
  type AnchorCall,
  type AnchorTransaction,
  decodeAnchorCall,
  decodeAnchorTransaction,
} from './evidence/anchor-transaction.ts'
export {
  type BlockHeader,
  decodeBlockHeader,
  decodeTransactionReceipt,
  hasAnchoredEvent,
} from './evidence/block.ts'
export { digestBootConfiguration } from './evidence/boot-configuration.ts'
export {
  BOOT_STATEMENT_FORMAT,
  type BootHead,
  type BootStatement,
  bootStatementUserData,
} from './evidence/boot-statement.ts'
export {
  type BundleBlock,
  type BundleRecord,
  createBundle,
  type EvidenceBundle,
  parseEvidenceBundle,
  type RedactablePart,
  redactBundle,
} from './evidence/bundle.ts'
export type {
  BundleCheck,
  BundleCheckName,
  BundleFacts,
  BundleReport,
  ProviderEvidenceFacts,
} from './evidence/bundle-checks.ts'
export { BUNDLE_FORMAT } from './evidence/bundle-forms.ts'
export type { BundleSource } from './evidence/bundle-source.ts'
export { completeEvidence, saveEvidence, writeEvidence } from './evidence/create-evidence.ts'
export { CALLS_MAX, readEvidenceLines, writeEvidenceLines } from './evidence/evidence-lines.ts'
export {
  HEAD_ATTESTATION_FORMAT,
  type HeadStatement,
  headAttestationUserData,
} from './evidence/head-attestation.ts'
export { type HeadAttestation, parseHeadAttestation } from './evidence/head-attestation-form.ts'
export type { BundleContext, BundlePolicy, ChainFacts } from './evidence/policy.ts'
export { buildTrieProof, verifyTrieProof } from './evidence/trie.ts'
export {
  type BootStatementCheckName,
  type BootStatementFacts,
  type BootStatementReport,
  parseBootStatement,
  verifyBootStatement,
} from './evidence/verify-boot-statement.ts'
export { verifyBundle } from './evidence/verify-bundle.ts'
export {
  type AttestedLog,
  type HeadAttestationCheckName,
  type HeadAttestationFacts,
  type HeadAttestationReport,
  verifyHeadAttestation,
} from './evidence/verify-head-attestation.ts'
export { canonicalizeJson } from './json/canonical.ts'
export { JsonError, type JsonErrorCode } from './json/json-error.ts'
export { parseLenientJson } from './json/parse-lenient.ts'
export { parseExactJson, parseStrictJson } from './json/parse-strict.ts'
export type { Json, JsonObject } from './json/value.ts'
export { hashReceipt, verifyLogProof } from './log-proof.ts'
export { type LogProof, parseLogProof } from './log-proof-form.ts'
export { appendLeaves, type Edge, emptyEdge, type LogNode, rootOf } from './merkle/edge.ts'
export { hashChildren, hashLeaf } from './merkle/hash.ts'
export {
  buildProof,
  consistencyNodes,
  inclusionNodes,
  type NodeCoordinate,
  type ProofNode,
} from './merkle/proof-nodes.ts'
export { verifyConsistency, verifyInclusion } from './merkle/verify.ts'
export { type AttestationCode, AttestationError } from './nitro/attestation-error.ts'
export type { RevocationList } from './nitro/check-revocation.ts'
export { type AttestationDocument, decodeAttestationPayload } from './nitro/document.ts'
export type { AttestationFacts } from './nitro/facts.ts'
export {
  type AttestationPolicy,
  AWS_ROOT_SHA256,
  type MeasurementSet,
  PolicyError,
  parseRoots,
} from './nitro/policy.ts'
export {
  type AttestationVerifier,
  createAttestationVerifier,
  verifyAttestation,
} from './nitro/verify-attestation.ts'
export {
  type KeptResponse,
  type LookedUpBlock,
  type NonceBlock,
  PROVIDER_KINDS,
  type ProviderEvidence,
  type ProviderKind,
  parseProviderEvidence,
  providerNonce,
  writeProviderEvidence,
} from './providers/evidence/evidence-document.ts'
export type {
  BoundKey,
  MeasuredModel,
  ProviderCode,
  ProviderModel,
} from './providers/evidence/judging.ts'
export { type RecordWeights, weightsOf } from './providers/evidence/model-weights.ts'
export { type ProviderPolicy, parseProviderPolicy } from './providers/evidence/provider-policy.ts'
export {
  type ProviderFacts,
  type ProviderJudgement,
  verifyProviderEvidence,
} from './providers/evidence/verify-provider-evidence.ts'
export { type ProviderCheck, requireChecks } from './providers/provider-checks.ts'
export { ProviderEvidenceError } from './providers/provider-error.ts'
export {
  parseReceipt,
  type Receipt,
  type ReceiptCredential,
  type ReceiptTls,
} from './receipt.ts'
export { hashChunks, hashCompletion } from './record-hash.ts'
export type { RecordOptions } from './record-subject.ts'
export { type RefusalStatement, refusalDigest, type SignedRefusal } from './refusal.ts'
export {
  configurationOf,
  parseRelease,
  parseSignedRelease,
  RELEASE_FORMAT,
  type Release,
  type SignedRelease,
} from './release/release.ts'
export {
  type AcceptedMeasurements,
  acceptedMeasurements,
  checkNotRolledBack,
  entryOf,
  parseReleaseList,
  parseSignedReleaseList,
  RELEASES_FORMAT,
  type ReleaseEntry,
  type ReleaseList,
  type SignedReleaseList,
} from './release/release-list.ts'
export { nameRelease } from './release/release-name.ts'
export { parseReleaseKey, type ReleaseTrust } from './release/release-signatures.ts'
export {
  signRelease,
  signReleaseList,
  verifyRelease,
  verifyReleaseList,
} from './release/verify-release.ts'
export {
  type EnclavesPolicy,
  type Policy,
  parsePolicy,
  readPolicyFile,
} from './report/policy-file.ts'
export type { StepKind, TurnStep } from './session/items.ts'
export type { CallRelation } from './session/relate-calls.ts'
export type { SessionCheck, SessionCheckName } from './session/session-checks.ts'
export {
  type SessionCallReport,
  type SessionReport,
  type TimelineStep,
  type VerifySessionContext,
  verifySession,
} from './session/verify-session.ts'
export { type LogDomain, type TreeHead, treeHeadDigest, verifyTreeHead } from './tree-head.ts'
export { parseEncryptionKey, verifyEncryptionKey } from './verify-encryption-key.ts'
export {
  type RecordCheck,
  type RecordCheckName,
  type RecordReport,
  verifyRecord,
} from './verify-record.ts'
export { verifyRefusal } from './verify-refusal.ts'
export { splitEvents, verifyEventStream, verifyStream } from './verify-stream.ts'
