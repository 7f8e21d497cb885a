import { decodeBase64, decodeHex, encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { attempt, type Check, check, type Finding, need, reasonOf } from '../finding.ts'
import type { Json, JsonObject } from '../json/value.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import type { Release } from '../release/release.ts'
import { checkBlockOnChain } from './anchor-checks.ts'
import { digestBootConfiguration } from './boot-configuration.ts'
import { parseBootConfiguration } from './boot-facts.ts'
import {
  checkCreatedAt,
  checkDocumentKey,
  checkExpectedConfiguration,
  checkExpectedMeasurements,
  describeDocument,
  findExpectedCode,
  verifyDocument,
} from './document-checks.ts'
import { headAttestationUserData } from './head-attestation.ts'
import { type HeadAttestation, parseHeadAttestation } from './head-attestation-form.ts'
import { type BundleContext, type BundlePolicy, readContext, readPolicy } from './policy.ts'
import {
  type CheckTable,
  isRefused,
  type Judgement,
  judgeChecks,
  orderChecks,
  refuseForm,
} from './verdict.ts'

export type HeadAttestationCheckName = keyof typeof HEAD_ATTESTATION_CHECKS

/** All checks. Each value states when `verified` needs that check. */
export const HEAD_ATTESTATION_CHECKS = {
  /** The attestation and the boot configuration are well-formed. If not, no other check is made. */
  format: 'always',
  /** The document was genuine when it was made: trusted root, chain, signature. */
  'attestation document': 'always',
  /** The document names the notary's key. */
  'attestation key': 'always',
  /** The document covers exactly this head of this log, and this boot configuration. */
  head: 'always',
  /** The document covers the block's hash. */
  'block hash': 'always',
  /** `created_at` is the time of the document in whole seconds. */
  created_at: 'always',
  /** The document is genuine and has the measurements that the caller expects. */
  measurements: 'always',
  /** The caller expects the boot configuration. */
  'expected configuration': 'always',
  /** The chain has this block at this number, with enough blocks after it. */
  'block on chain': 'with a chain',
} as const satisfies CheckTable<string>

/** The log of a head attestation, from the answer of /v1/log or from the caller's own data. */
export type AttestedLog = {
  /** 0x, lower case. */
  readonly notary: string
  readonly bootConfiguration: JsonObject
}

export type HeadAttestationReport = Judgement<HeadAttestationCheckName> & {
  readonly checks: readonly Check<HeadAttestationCheckName>[]
  /** Null if the attestation is invalid. */
  readonly facts: HeadAttestationFacts | null
}

/** The facts of a head attestation that is not invalid. Only facts whose checks passed. */
export type HeadAttestationFacts = {
  readonly notary: string
  readonly size: number
  /** 32 bytes. */
  readonly root: Uint8Array
  /**
   * At this time, the leaves below `size` existed. Unix milliseconds, by the security module's
   * clock.
   */
  readonly timestampMs: number
  /** The hash that the enclave received before it read its log: 0x, lower case. */
  readonly blockHash: string
  /** Leaves from `size` on were appended after this block of the chain. Null if not checked. */
  readonly notBefore: { readonly number: number; readonly hash: string } | null
  /** Measurements of the enclave, 48 bytes each by index. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Null if the policy accepts the code by its measurements, not by a release. */
  readonly release: Release | null
}

/**
 * Checks what a head attestation proves about a log, without a network or a clock. `json` and `log`
 * are attacker-controlled: read their text with parseExactJson. Never rejects because of their
 * content. Rejects with PolicyError, before any check, if policy or context has a wrong form.
 *
 * If verified: an enclave of the expected code and configuration, which holds the notary's key,
 * received the block's hash, then read its log, then requested the document. For the log with this
 * root at this size, this proves two facts. The leaves below `size` existed at the document's
 * timestamp. Every leaf i >= `size` was appended after the block, because the block's hash was
 * unknown before the block existed.
 *
 * Does NOT prove: that the hash belongs to a block (a gateway can send any 32 bytes; look up the
 * hash, or pass `context.chain`: only then `facts.notBefore` is set); that the block was the newest
 * (an old block proves less); `block_number` without a chain; that the log with this root is the
 * log that the notary anchored (prove that with verifyConsistency between this root and a head's);
 * the earliest time of a leaf below `size`; that the security module's clock is right (AWS runs
 * it).
 */
export async function verifyHeadAttestation(
  json: Json,
  log: AttestedLog,
  demanded: BundlePolicy,
  context: BundleContext = {},
): Promise<HeadAttestationReport> {
  const policy = readPolicy(demanded)
  const { chain, attestations } = readContext(context)
  const parsed = attempt(() => ({
    attestation: parseHeadAttestation(json),
    chainId: parseBootConfiguration(log.bootConfiguration).chainId,
  }))
  if ('fault' in parsed) {
    const detail = reasonOf(parsed.fault)
    return {
      ...refuseForm(HEAD_ATTESTATION_CHECKS, { subject: 'the head attestation', detail }),
      facts: null,
    }
  }
  const { attestation, chainId } = parsed.value
  const configuration = digestBootConfiguration(log.bootConfiguration)
  const bytes = attempt(() => decodeBase64(attestation.document))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyDocument(bytes, policy, attestations)
  const block = { chainId, number: attestation.block_number, hash: attestation.block_hash }
  const made: readonly Check<HeadAttestationCheckName>[] = [
    { name: 'format', outcome: 'passed', detail: 'version 1' },
    check('attestation document', () => describeDocument(need(facts))),
    check('attestation key', () => checkDocumentKey(need(document), log.notary)),
    check('head', () =>
      checkHead(need(document), { attestation, configuration, notary: log.notary }),
    ),
    check('block hash', () => checkBlockHash(need(document), attestation)),
    check('created_at', () => checkCreatedAt(need(document), attestation.created_at)),
    check('measurements', () => checkExpectedMeasurements(document, { facts, policy })),
    check('expected configuration', () =>
      checkExpectedConfiguration(configuration, { document, policy }),
    ),
    check('block on chain', () =>
      checkBlockOnChain(block, { chain, confirmationsMin: policy.confirmationsMin }),
    ),
  ]
  const checks = orderChecks(made, HEAD_ATTESTATION_CHECKS)
  const judgement = judgeChecks(checks, {
    table: HEAD_ATTESTATION_CHECKS,
    hasChain: chain !== undefined,
  })
  const isInvalid = isRefused(judgement.verdict)
  return {
    ...judgement,
    checks,
    facts: isInvalid
      ? null
      : gatherFacts(need(document), { attestation, notary: log.notary, checks, policy }),
  }
}

function checkHead(
  { userData }: AttestationDocument,
  {
    attestation,
    configuration,
    notary,
  }: {
    readonly attestation: HeadAttestation
    readonly configuration: Uint8Array
    readonly notary: string
  },
): Finding {
  const { size, root } = attestation
  const expected = headAttestationUserData({ configuration, notary, size, root: decodeHex(root) })
  if (userData === null || !equalBytes(userData, expected))
    throw new ProofError(
      'wrong_head',
      "expected the document's user_data to be of this head of this log, under this boot configuration",
    )
  return `size ${size}, root ${root}, configuration ${encodeHex(configuration)}`
}

function checkBlockHash(
  { nonce }: AttestationDocument,
  { block_hash: hash }: HeadAttestation,
): Finding {
  if (nonce === null || !equalBytes(nonce, decodeHex(hash)))
    throw new ProofError('wrong_block', `expected the document's nonce to be ${hash}`)
  return `the enclave was given ${hash}`
}

function gatherFacts(
  document: AttestationDocument,
  {
    attestation,
    notary,
    checks,
    policy,
  }: {
    readonly attestation: HeadAttestation
    readonly notary: string
    readonly policy: BundlePolicy
    readonly checks: readonly Check<HeadAttestationCheckName>[]
  },
): HeadAttestationFacts {
  const { size, root, block_number: number, block_hash: hash } = attestation
  const isOnChain = checks.some(
    ({ name, outcome }) => name === 'block on chain' && outcome === 'passed',
  )
  return {
    notary,
    size,
    root: decodeHex(root),
    timestampMs: document.timestampMs,
    blockHash: hash,
    notBefore: isOnChain ? { number, hash } : null,
    measurements: document.pcrs,
    release: findExpectedCode(document, policy)?.release ?? null,
  }
}
