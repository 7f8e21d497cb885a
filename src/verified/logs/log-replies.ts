import { z } from 'zod'
import { address, base64, digest, hash32, hexBytes, unixSeconds } from '../../api/schemas.ts'
import { bootConfiguration } from '../../enclaves/notary-replies.ts'
import { anyRecord } from '../records/record-replies.ts'

const size = z.int().min(0)

const head = z.strictObject({
  size,
  root: digest,
  signature: hexBytes,
  created_at: unixSeconds,
  anchor: z.strictObject({
    tx_hash: hash32,
    replaces: z
      .array(hash32)
      .min(1)
      .optional()
      .describe(
        'Earlier transactions of this head, which cannot be mined; records carry the first',
      ),
    state: z.enum(['pending', 'mined', 'confirmed', 'reverted']),
    block_number: z.int().nullable(),
    block_hash: hash32.nullable(),
  }),
})

export const log = z.strictObject({
  notary: address,
  public_key: hexBytes,
  chain_id: z.int(),
  contract: address,
  boot_configuration: bootConfiguration,
  created_at: unixSeconds,
  size,
  root: digest,
  head: head.nullable(),
  attestation_sha256: digest
    .nullable()
    .describe(
      'SHA-256 of the latest attestation document in a record; null while the log is empty',
    ),
})

export const logList = z.strictObject({ logs: z.array(log), cursor: address.nullable() })

/**
 * The heads of other logs that the enclave received while its own log was empty. `statement` is
 * null if the enclave made no statement.
 */
export const bootStatement = z.strictObject({
  notary: address,
  statement: z
    .strictObject({
      heads: z.array(
        z.strictObject({
          notary: address,
          size: z.int().min(1),
          root: digest,
          signature: hexBytes,
        }),
      ),
      created_at: unixSeconds,
      document: base64,
    })
    .nullable(),
})

export const headList = z.strictObject({
  notary: address,
  heads: z.array(head),
  attestations: z.array(
    z.strictObject({
      size,
      root: digest,
      block_number: z.int(),
      block_hash: hash32,
      created_at: unixSeconds,
      document: base64,
    }),
  ),
  cursor: size.nullable(),
})

export const inclusionProof = z.strictObject({
  notary: address,
  index: size,
  size,
  root: digest,
  leaf_hash: digest,
  path: z.array(digest),
})

export const foundThings = z.strictObject({
  completion: z
    .strictObject({ hash: digest, notary: address, index: size })
    .nullable()
    .describe('The completion with this hash, and its leaf'),
  restricted: z
    .boolean()
    .describe('Completions were not searched: this service gives evidence only to accounts'),
  log: z.strictObject({ notary: address, size }).nullable(),
  heads: z
    .array(head.extend({ notary: address }))
    .describe('Heads that are anchored by this transaction, or in this block'),
  more_heads: z.boolean().describe('There are more heads than these'),
})

export const consistencyProof = z.strictObject({
  notary: address,
  from: size,
  to: size,
  path: z.array(digest),
})

export const leafList = z.strictObject({
  notary: address,
  start: size,
  end: size,
  leaves: z.array(digest),
})

/** Only records that the caller may see. */
export const logRecordList = z.strictObject({
  notary: address,
  records: z.array(anyRecord),
  next: size.nullable(),
})

export type HeadReply = z.output<typeof head>
export type LogReply = z.output<typeof log>
export type HeadListReply = z.output<typeof headList>
export type InclusionReply = z.output<typeof inclusionProof>
export type ConsistencyReply = z.output<typeof consistencyProof>
