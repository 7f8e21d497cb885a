import { FormatError } from '#attestation/errors.ts'
import { formOf, formsOf } from '#attestation/json/forms.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseLogProof } from '#attestation/log-proof-form.ts'
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
} from '../protocol/enclave-api.ts'

const { arrayOf, countOf, invalid, membersOf, objectOf, textOf } = formsOf('invalid_call')

const HASH = formOf(/^0x[0-9a-f]{64}$/)
const CALL_ID = { form: /^\d{1,16}$/, expectation: 'the index of a leaf, as text' }
const ENCAPSULATED_KEY = formOf(/^[0-9a-f]{64}$/)

/** Must be printable: a line break would add another header. */
const CREDENTIAL = {
  form: new RegExp(`^[\\x20-\\x7e]{1,${CREDENTIAL_BYTES_MAX}}$`),
  expectation: `1 to ${CREDENTIAL_BYTES_MAX} printable ASCII characters`,
}

const SEALED_LENGTH_MAX = Math.floor((SEALED_CREDENTIAL_BYTES_MAX * 4) / 3 + 1)
const SEALED_CREDENTIAL = {
  form: new RegExp(`^[A-Za-z0-9_-]{1,${SEALED_LENGTH_MAX}}$`),
  expectation: `base64url of at most ${SEALED_CREDENTIAL_BYTES_MAX} bytes`,
}

/** Throws CallFault `invalid_call`. */
export function decodeCall(header: string | readonly string[] | undefined): CompletionCall {
  return decodeHeader(header, (call) => ({
    context: contextOf(call),
    provider: textOf(call.provider, 'provider'),
    credential: call.credential === null ? null : credentialOf(call.credential),
    is_callers: flagOf(call, 'is_callers'),
    ...(call.headers === undefined ? {} : { headers: headersOf(call.headers) }),
    ...(flagOf(call, 'outlives_gateway') ? { outlives_gateway: true } : {}),
    ...(flagOf(call, 'tells_completion') ? { tells_completion: true } : {}),
  }))
}

/** Throws CallFault `invalid_call`. */
export function decodeEncryptedCall(header: string | readonly string[] | undefined): EncryptedCall {
  return decodeHeader(header, (call) => {
    const { encapsulated_key: enc, sealed_credential: sealed, answer_tokens_max: most } = call
    const credentials = Object.entries(objectOf(call.credentials, 'credentials'))
    return {
      context: contextOf(call),
      credentials: Object.fromEntries(
        credentials.map(([provider, credential]) => [provider, credentialOf(credential)]),
      ),
      encapsulated_key: textOf(enc, 'encapsulated_key', ENCAPSULATED_KEY),
      sealed_credential:
        sealed === null ? null : textOf(sealed, 'sealed_credential', SEALED_CREDENTIAL),
      ...(most === undefined ? {} : { answer_tokens_max: countOf(most, 'answer_tokens_max') }),
    }
  })
}

/** Throws CallFault `invalid_call`. */
export function decodeAnchorProof(body: Uint8Array): AnchorProof {
  return decodeObject(body, readAnchorProof)
}

function readAnchorProof({ call, tx_hash: txHash, log = null }: Members): AnchorProof {
  return {
    call: textOf(call, 'call', CALL_ID),
    tx_hash: textOf(txHash, 'tx_hash', HASH),
    log: parseLogProof(log),
  }
}

/** Throws CallFault `invalid_call`. */
export function decodePull(body: Uint8Array): Required<PullRequest> {
  return decodeObject(body, (pull) => {
    const { known_document: known, proofs = [] } = pull
    const max = countOf(pull.max, 'max')
    if (max === 0) throw invalid('max', 'at least 1')
    return {
      from: countOf(pull.from, 'from'),
      wait_ms: Math.min(countOf(pull.wait_ms, 'wait_ms'), PULL_WAIT_MAX_MS),
      max,
      known_document: known === null ? null : textOf(known, 'known_document'),
      proofs: arrayOf(proofs, 'proofs').map((proof) => readAnchorProof(objectOf(proof, 'a proof'))),
    }
  })
}

/** The body must have only the member `block_hash`. Throws CallFault `invalid_call`. */
export function decodeHeadAttestationRequest(body: Uint8Array): HeadAttestationRequest {
  return decodeObject(body, (value) => {
    const { block_hash: hash } = membersOf(value, 'the request', ['block_hash'])
    return { block_hash: textOf(hash, 'block_hash', HASH) }
  })
}

type Members = JsonObject & Readonly<Record<string, Json | undefined>>

function contextOf({ context }: Members): string {
  const text = textOf(context, 'context')
  if (Buffer.byteLength(text) <= CONTEXT_BYTES_MAX) return text
  throw invalid('context', `of at most ${CONTEXT_BYTES_MAX} bytes`)
}

function headersOf(value: Json): Readonly<Record<string, string>> {
  const headers = Object.entries(objectOf(value, 'headers'))
  return Object.fromEntries(headers.map(([name, text]) => [name, textOf(text, name)]))
}

function credentialOf(value: Json | undefined): string {
  return textOf(value, 'a credential', CREDENTIAL)
}

/** Returns false if the member is left out. */
function flagOf(call: Members, name: string): boolean {
  const { [name]: flag = false } = call
  if (typeof flag === 'boolean') return flag
  throw invalid(name, 'true or false')
}

function decodeHeader<Value>(
  header: string | readonly string[] | undefined,
  read: (call: Members) => Value,
): Value {
  if (typeof header !== 'string' || !/^[A-Za-z0-9_-]+$/.test(header))
    throw new CallFault('invalid_call', `expected a header ${CALL_HEADER} in base64url`)
  return decodeObject(Buffer.from(header, 'base64url'), read)
}

function decodeObject<Value>(bytes: Uint8Array, read: (members: Members) => Value): Value {
  try {
    return read(objectOf(parseStrictJson(bytes), 'what is sent'))
  } catch (error) {
    if (!(error instanceof FormatError)) throw error
    throw new CallFault('invalid_call', error.message)
  }
}
