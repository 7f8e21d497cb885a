import { z } from 'zod'
import {
  type BootStatementReply,
  type EnclaveFault,
  type HeadAttestationReply,
  type Identity,
  PROTOCOL_VERSIONS,
  type PullReply,
  type SealedNotice,
} from '../../enclave/protocol/messages.ts'
import { EnclaveError } from './enclave-error.ts'

/*
 * Each gives the value it was given, not a copy: a boot configuration is hashed as a whole, so no member may be lost.
 * All throw EnclaveError `protocol`.
 */

/** Identity of an enclave whose version of the protocol this gateway speaks. */
export function parseIdentity(value: unknown): Identity {
  const identity = parse<Identity>(identitySchema, value, 'an identity')
  const version = identity.boot_configuration.protocol_version
  if (!PROTOCOL_VERSIONS.includes(version))
    throw new EnclaveError(
      'protocol',
      `expected a protocol version of ${PROTOCOL_VERSIONS.join(' and ')}, got ${version}`,
    )
  return identity
}

/** Notice that a completion was sealed. */
export function parseSealedNotice(value: unknown): SealedNotice {
  return parse<SealedNotice>(noticeSchema, value, 'a sealed notice')
}

/** Fault of a call. A code that this version does not know is an internal error of the enclave. */
export function parseFault(value: unknown): EnclaveFault {
  const fault = parse<EnclaveFault>(faultSchema, value, 'a fault')
  return FAULT_CODES.has(fault.code) ? fault : { ...fault, code: 'internal_error' }
}

/** Reply to a pull. The hashes, signatures and order in it are the committer's to verify. */
export function parsePullReply(value: unknown): PullReply {
  return parse<PullReply>(pullReplySchema, value, 'a pull reply')
}

/** Document of a fresh attestation, standard base64. */
export function parseAttestationReply(value: unknown): string {
  return parse<{ readonly document: string }>(z.object({ document: z.string() }), value, 'a document')
    .document
}

/** Reply to a call for a head attestation. What its document says is the asker's to check. */
export function parseHeadAttestationReply(value: unknown): HeadAttestationReply {
  return parse<HeadAttestationReply>(headAttestationSchema, value, 'a head attestation')
}

/** A boot statement. Throws EnclaveError `protocol`. */
export function parseBootStatementReply(value: unknown): BootStatementReply {
  return parse<BootStatementReply>(bootStatementSchema, value, 'a boot statement')
}

function parse<Value>(schema: z.ZodType, value: unknown, expected: string): Value {
  const { error } = schema.safeParse(value)
  const issue = error?.issues[0]
  if (issue) throw new EnclaveError('protocol', `expected ${expected}, fault at ${issue.path.join('.')}`)
  return value as Value
}

const index = z.int().min(0)
const outcome = z.enum(['complete', 'client_disconnected', 'upstream_error'])

const identitySchema = z.object({
  boot_configuration: z.object({
    protocol_version: z.int(),
    providers: z.array(
      z.object({ name: z.string(), origin: z.url(), path: z.string(), models: z.array(z.string()) }),
    ),
    ca_sha256: z.string(),
    chain_id: z.int(),
    contract: z.string(),
  }),
  public_key: z.string(),
  notary: z.string(),
  attestation: z.string(),
  log: z.object({ size: index, acknowledged: index }),
})

const headAttestationSchema = z.object({
  size: index,
  root: z.string().regex(/^[0-9a-f]{64}$/),
  document: z.base64().min(1),
})

const bootStatementSchema = z.object({
  heads: z.array(
    z.strictObject({
      notary: z.string().regex(/^0x[0-9a-f]{40}$/),
      size: z.int().min(1),
      root: z.string().regex(/^[0-9a-f]{64}$/),
      signature: z.string().regex(/^0x[0-9a-f]{130}$/),
    }),
  ),
  document: z.base64().min(1),
})

const noticeSchema = z.object({ notary: z.string(), index, outcome })

const faultSchema = z.object({
  status: z.int().min(400).max(599),
  code: z.string(),
  message: z.string(),
  loc: z.array(z.union([z.string(), z.number()])).optional(),
  provider_code: z.string().optional(),
  retry_after_seconds: z.int().min(0).optional(),
})

const FAULT_CODES: ReadonlySet<string> = new Set<EnclaveFault['code']>([
  'invalid_request',
  'unsupported_model',
  'provider_mismatch',
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_timeout',
  'answer_too_large',
  'log_full',
  'not_ready',
  'too_busy',
  'invalid_call',
  'log_conflict',
  'internal_error',
])

const sealedCompletionSchema = z.object({
  index,
  request: z.string(),
  response: z.string(),
  receipt: z.string(),
  signature: z.string(),
  document: z.string(),
  context: z.string(),
})

const pullReplySchema = z.object({
  notary: z.string(),
  public_key: z.string(),
  head: z.object({ size: index, root: z.string(), signature: z.string() }).nullable(),
  completions: z.array(sealedCompletionSchema),
  documents: z.record(z.string(), z.string()),
})
