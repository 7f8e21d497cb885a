import { FormatError } from '../../attestation/errors.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import {
  hasExactMembers,
  isCount,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'
import { CallFault } from '../call-fault.ts'
import {
  CALL_HEADER,
  CONTEXT_BYTES_MAX,
  type CompletionCall,
  CREDENTIAL_BYTES_MAX,
  type HeadAttestationRequest,
  PULL_WAIT_MAX_MS,
  type PullRequest,
} from '../protocol/messages.ts'

/** The gateway's part of a completion call, from its header. Throws CallFault `invalid_call`. */
export function decodeCall(header: string | readonly string[] | undefined): CompletionCall {
  if (typeof header !== 'string' || !/^[A-Za-z0-9_-]+$/.test(header))
    throw invalid(`expected a header ${CALL_HEADER} in base64url`)
  const value = decodeObject(Buffer.from(header, 'base64url'))
  const { context, provider, credential } = value
  if (typeof context !== 'string' || Buffer.byteLength(context) > CONTEXT_BYTES_MAX)
    throw invalid(`expected context to be text of at most ${CONTEXT_BYTES_MAX} bytes`)
  if (typeof provider !== 'string') throw invalid('expected provider to be text')
  if (credential !== null && (typeof credential !== 'string' || !isCredential(credential)))
    throw invalid(
      `expected credential to be null or 1 to ${CREDENTIAL_BYTES_MAX} printable ASCII characters`,
    )
  return { context, provider, credential }
}

/** A pull request, from its body. Throws CallFault `invalid_call`. */
export function decodePull(body: Uint8Array): PullRequest {
  const { from, wait_ms: waitMs, max, known_document: known } = decodeObject(body)
  if (!isCount(from) || !isCount(waitMs) || !isCount(max) || max === 0)
    throw invalid('expected from, wait_ms and max to be whole numbers from 0, max from 1')
  if (known !== null && typeof known !== 'string')
    throw invalid('expected known_document to be text or null')
  return { from, wait_ms: Math.min(waitMs, PULL_WAIT_MAX_MS), max, known_document: known }
}

/**
 * A request for a head attestation, from its body: this member, in this form, and no other. Throws
 * CallFault `invalid_call`.
 */
export function decodeHeadAttestationRequest(body: Uint8Array): HeadAttestationRequest {
  const value = decodeObject(body)
  const { block_hash: hash } = value
  if (
    !hasExactMembers(value, ['block_hash']) ||
    typeof hash !== 'string' ||
    !/^0x[0-9a-f]{64}$/.test(hash)
  )
    throw invalid('expected block_hash alone, 0x and 64 hex digits in lower case')
  return { block_hash: hash }
}

function decodeObject(bytes: Uint8Array): JsonObject & Readonly<Record<string, Json | undefined>> {
  try {
    const value = parseStrictJson(bytes)
    if (isJsonObject(value)) return value
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
  }
  throw invalid('expected a JSON object')
}

/**
 * Printable, because it travels in a header: a line break in it would be a header of the caller's
 * own.
 */
function isCredential(text: string): boolean {
  return /^[\x20-\x7e]+$/.test(text) && text.length <= CREDENTIAL_BYTES_MAX
}

function invalid(message: string): CallFault {
  return new CallFault('invalid_call', message)
}
