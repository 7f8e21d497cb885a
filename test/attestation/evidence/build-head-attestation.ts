import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { HeadAttestation } from '#attestation/evidence/head-attestation-form.ts'
import type { ChainFacts } from '#attestation/evidence/policy.ts'
import type { AttestedLog } from '#attestation/evidence/verify-head-attestation.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import type { Fields } from '../../support/nitro-builder/document-builder.ts'
import { CHAIN_ID, NOTARY } from '../build-record.ts'
import { BOOT_CONFIGURATION, digestOf, documentFor } from './build-evidence.ts'

/** The log of these tests. */
export const ATTESTED_LOG: AttestedLog = {
  notary: NOTARY.address.toLowerCase(),
  bootConfiguration: BOOT_CONFIGURATION,
}

/** What to make otherwise than an honest enclave would; the document is made from these parts. */
export type HeadAttestationParts = {
  readonly size?: number
  readonly root?: string
  readonly blockHash?: string
  readonly timestampMs?: number
  /** Members of the statement, and fields of the document, that are made otherwise. */
  readonly statement?: Readonly<Record<string, unknown>>
  readonly fields?: Fields
}

/**
 * A valid head attestation, but for what the parts change; the statement is written down here a
 * second time.
 */
export function buildHeadAttestation(parts: HeadAttestationParts = {}): HeadAttestation {
  const { size = 7, root = '5a'.repeat(32), blockHash = `0x${'b1'.repeat(32)}` } = parts
  const timestampMs = parts.timestampMs ?? MADE_AT.getTime() + 1_234
  const statement = {
    format: 'affidavit-head-attestation',
    version: 1,
    boot_configuration: Buffer.from(digestOf(BOOT_CONFIGURATION)).toString('hex'),
    notary: ATTESTED_LOG.notary,
    size,
    root,
    ...parts.statement,
  }
  const userData = createHash('sha256')
    .update(String(canonicalize(statement)))
    .digest()
  const document = documentFor(BOOT_CONFIGURATION, {
    user_data: userData,
    nonce: Buffer.from(blockHash.slice(2), 'hex'),
    timestamp: timestampMs,
    ...parts.fields,
  })
  return {
    size,
    root,
    block_number: 1000,
    block_hash: blockHash,
    created_at: Math.floor(timestampMs / 1000),
    document,
  }
}

/** A chain that has the attestation's block, ten deep. */
export function chainWith({ block_hash: blockHash }: HeadAttestation): ChainFacts {
  return { chainId: CHAIN_ID, blockHash, newestBlock: 1009 }
}
