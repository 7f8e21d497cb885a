import { FormatError } from '../../attestation/errors.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import {
  hasExactMembers,
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'
import { parseLogProof } from '../../attestation/log-proof-form.ts'
import { CallFault } from '../call-fault.ts'
import {
  type AnchorProof,
  CALL_HEADER,
  CONTEXT_BYTES_MAX,
  type CompletionCall,
  CREDENTIAL_BYTES_MAX,
  type EncryptedCall,
  type HeadAttestationRequest,
  PULL_WAIT_MAX_MS,
  type PullRequest,
  SEALED_CREDENTIAL_BYTES_MAX,
} from '../protocol/messages.ts'

/** The gateway's part of a completion call, from its header. Throws CallFault `invalid_call`. */
export function decodeCall(header: string | readonly string[] | undefined): CompletionCall {
  const {
    context,
    provider,
    credential,
    is_callers: isCallers = false,
    outlives_gateway: outlivesGateway = false,
    tells_completion: tellsCompletion = false,
  } = decodeHeader(header)
  const text = decodeContext(context)
  if (typeof provider !== 'string') throw invalid('expected provider to be text')
  if (credential !== null && (typeof credential !== 'string' || !isCredential(credential)))
    throw invalidCredential()
  if (typeof isCallers !== 'boolean') throw invalid('expected is_callers to be true or false')
  if (typeof outlivesGateway !== 'boolean')
    throw invalid('expected outlives_gateway to be true or false')
  if (typeof tellsCompletion !== 'boolean')
    throw invalid('expected tells_completion to be true or false')
  return {
    context: text,
    provider,
    credential,
    is_callers: isCallers,
    ...(outlivesGateway ? { outlives_gateway: true } : {}),
    ...(tellsCompletion ? { tells_completion: true } : {}),
  }
}

/** The gateway's part of an encrypted call, from its header. Throws CallFault `invalid_call`. */
export function decodeEncryptedCall(header: string | readonly string[] | undefined): EncryptedCall {
  const value = decodeHeader(header)
  const { context, credentials, encapsulated_key: enc, sealed_credential: sealed } = value
  if (!isJsonObject(credentials)) throw invalid('expected credentials to be an object')
  for (const credential of Object.values(credentials))
    if (typeof credential !== 'string' || !isCredential(credential)) throw invalidCredential()
  if (typeof enc !== 'string' || !/^[0-9a-f]{64}$/.test(enc))
    throw invalid('expected encapsulated_key to be 64 hex digits')
  if (sealed !== null && !(typeof sealed === 'string' && isSealed(sealed)))
    throw invalid('expected sealed_credential to be null or base64url')
  return {
    context: decodeContext(context),
    credentials: credentials as Readonly<Record<string, string>>,
    encapsulated_key: enc,
    sealed_credential: sealed,
  }
}

/** What the gateway knows of a call's proof, from its body. Throws CallFault `invalid_call`. */
export function decodeAnchorProof(body: Uint8Array): AnchorProof {
  return readAnchorProof(decodeObject(body))
}

function readAnchorProof(value: Json): AnchorProof {
  const { call, tx_hash: txHash, log } = isJsonObject(value) ? value : {}
  if (typeof call !== 'string' || !/^\d{1,16}$/.test(call))
    throw invalid('expected call to be the index of a leaf, as text')
  if (typeof txHash !== 'string' || !/^0x[0-9a-f]{64}$/.test(txHash))
    throw invalid('expected tx_hash to be 0x and 64 hex digits')
  try {
    return { call, tx_hash: txHash, log: parseLogProof(log ?? null) }
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    throw invalid(error.message)
  }
}

function isSealed(text: string): boolean {
  return /^[A-Za-z0-9_-]+$/.test(text) && text.length <= (SEALED_CREDENTIAL_BYTES_MAX * 4) / 3 + 1
}

function decodeHeader(header: string | readonly string[] | undefined) {
  if (typeof header !== 'string' || !/^[A-Za-z0-9_-]+$/.test(header))
    throw invalid(`expected a header ${CALL_HEADER} in base64url`)
  return decodeObject(Buffer.from(header, 'base64url'))
}

function decodeContext(context: Json | undefined): string {
  if (typeof context === 'string' && Buffer.byteLength(context) <= CONTEXT_BYTES_MAX) return context
  throw invalid(`expected context to be text of at most ${CONTEXT_BYTES_MAX} bytes`)
}

function invalidCredential(): CallFault {
  return invalid(
    `expected credential to be null or 1 to ${CREDENTIAL_BYTES_MAX} printable ASCII characters`,
  )
}

/** A pull request, from its body. Throws CallFault `invalid_call`. */
export function decodePull(body: Uint8Array): Required<PullRequest> {
  const { from, wait_ms: waitMs, max, known_document: known, proofs = [] } = decodeObject(body)
  if (!isCount(from) || !isCount(waitMs) || !isCount(max) || max === 0)
    throw invalid('expected from, wait_ms and max to be whole numbers from 0, max from 1')
  if (known !== null && typeof known !== 'string')
    throw invalid('expected known_document to be text or null')
  if (!isJsonArray(proofs)) throw invalid('expected proofs to be an array')
  return {
    from,
    wait_ms: Math.min(waitMs, PULL_WAIT_MAX_MS),
    max,
    known_document: known,
    proofs: proofs.map(readAnchorProof),
  }
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
