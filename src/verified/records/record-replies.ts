import { z } from 'zod'
import { DIALECT_NAMES } from '#attestation/dialects/dialect-names.ts'
import { SOURCE_URL_LENGTH_MAX } from '#attestation/evidence/bundle-source.ts'
import { address, base64, digest, hash32, hexBytes, unixSeconds } from '../../api/schemas.ts'
import { recordedCompletion } from '../../chat/completion-replies.ts'

const receipt = z.strictObject({
  version: z.literal(1),
  index: z.int().min(0),
  hash: digest,
  request_hash: digest,
  response_hash: digest,
  forwarded_hash: digest,
  received_hash: digest,
  provider: z.strictObject({
    name: z.string(),
    origin: z.string(),
    tls: z
      .strictObject({
        protocol: z.string(),
        spki_sha256: digest,
        subject: z.string(),
        issuer: z.string(),
      })
      .nullable(),
  }),
  model: z.strictObject({ requested: z.string(), returned: z.string().nullable() }),
  outcome: z.enum(['complete', 'client_disconnected', 'upstream_error']),
  started_at: z.int().min(0).describe("Unix milliseconds of the enclave's clock"),
  finished_at: z.int().min(0),
  stream_hash: digest
    .nullable()
    .describe('Hash over the chunks that were sent; null when not streamed'),
  attempt: z
    .int()
    .min(1)
    .describe('How many times the log was asked for a completion of this request'),
  encrypted: z.boolean(),
  credential: z
    .strictObject({ from: z.enum(['caller', 'operator', 'none']), demanded: z.boolean() })
    .describe('Whose credential the provider was shown, and whether the request demanded it'),
  dialect: z.enum(DIALECT_NAMES),
  headers: z
    .record(z.string(), z.string())
    .describe('Headers of the call that are hashed: chat calls have no such headers'),
})

const log = z
  .strictObject({
    size: z.int(),
    root: digest,
    signature: hexBytes,
    path: z.array(digest),
    chain_id: z.int(),
    contract: address,
  })
  .describe('Inclusion of the receipt in the signed tree head that is anchored')

export const proof = {
  hash: digest.describe('SHA-256 of request hash and response hash'),
  public_key: z.string().regex(/^0x04[0-9a-f]{128}$/),
  signature: z.string().regex(/^0x[0-9a-f]{130}$/),
  tx_hash: hash32.describe(
    'Transaction of the anchor of `log`: the first anchored head that contains this completion',
  ),
  attestation: base64.describe('Attestation document of the enclave'),
  receipt,
  log,
}

/** Part 2.3 of the interface. */
export const verifiedCompletion = recordedCompletion.extend(proof)

const tokenUsage = z.strictObject({
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
})

/** Part 2.4 of the interface. */
const storedRecord = z.strictObject({
  id: z.uuid(),
  request: z
    .looseObject({ model: z.string(), messages: z.array(z.looseObject({})) })
    .nullable()
    .describe(
      'Null for an encrypted call, whose content only its caller has, and for erased content',
    ),
  response: recordedCompletion.nullable(),
  redacted: z.literal(true).optional().describe('Present when request and response are null'),
  usage: tokenUsage.nullish().describe('Only for an encrypted call: what its provider stated'),
  erased: z
    .strictObject({
      at: unixSeconds,
      by: z.enum(['operator', 'account', 'retention']),
      reason: z.string(),
    })
    .optional()
    .describe('When and why this service erased request and response; the proofs stay'),
  withheld: z
    .strictObject({
      code: z.enum(['content_key_missing', 'content_unreadable']),
      message: z.string(),
    })
    .optional()
    .describe('Why this service has request and response, but cannot give them'),
  ...proof,
  reanchored: z
    .array(hash32)
    .min(1)
    .optional()
    .describe(
      'Transactions that anchor the head in the place of tx_hash, which cannot be mined; in ' +
        'order; absent when there are no such transactions',
    ),
  created_at: unixSeconds,
})

export const recordList = z.strictObject({
  completions: z.array(storedRecord),
  cursor: z.uuid().nullable().describe('Send it to get the next page; null at the end'),
})

/** Request and response have the form of the record's dialect. */
export const anyRecord = storedRecord.extend({
  request: z
    .looseObject({})
    .nullable()
    .describe('Of a chat: its body. Else `dialect`, `headers` and `body`, as they are hashed'),
  response: z.looseObject({}).nullable(),
})

export const dialectRecord = anyRecord.extend({ dialect: z.enum(DIALECT_NAMES) })

export type RecordReply = z.output<typeof dialectRecord>

export const dialectRecordList = recordList.extend({ completions: z.array(dialectRecord) })

const sourceUrl = z.string().max(SOURCE_URL_LENGTH_MAX)

/** attestation/evidence/bundle.schema.json describes the other members. */
export const evidenceBundle = z
  .looseObject({
    version: z.int(),
    source: z
      .strictObject({
        gateway: sourceUrl.optional().describe('URL of this service'),
        operator: z.string().optional().describe('Who runs it'),
        releases: sourceUrl.optional().describe('URL of its signed list of releases'),
      })
      .optional()
      .describe('Where the bundle is from: a hint for its reader, which nothing checks'),
  })
  .describe('Evidence: record, proof, anchor, block and attestation, to be checked offline')
