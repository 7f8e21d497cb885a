import { encodeBase64Url, encodeHex, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import {
  type CredentialDemand,
  DEMANDS_MEMBER,
  type Demands,
  digestCredential,
  type SessionPlace,
} from '#attestation/demands.ts'
import {
  type CallHeaders,
  DEMANDS_HEADER,
  hashedHeaders,
} from '#attestation/dialects/call-request.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { answerBound } from '#attestation/dialects/usage.ts'
import { ANSWER_TOKENS_HEADER, NOTARY_HEADER } from '#attestation/ehbp.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { isCount, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import type { CallDialect } from './call-dialects.ts'
import type { SentCall } from './check-answer.ts'
import { AffidavitError, withErrorCode } from './errors.ts'
import { type CallSends, newSends, type RepeatedCalls } from './sends.ts'

type GivenCall = {
  readonly form: CallDialect
  readonly headers: Headers
  readonly body: Uint8Array
  readonly credential: string | null
  /** Null: the call belongs to no session. */
  readonly place: SessionPlace | null
  /** TLS keys of the attested providers. Null: any provider may receive the call. */
  readonly providerKeys: readonly string[] | null
  readonly isEncrypted: boolean
}

/** A call that is ready to be sent. The answer must belong to `call`. */
export type PreparedCall = {
  readonly headers: Headers
  readonly body: Uint8Array<ArrayBuffer>
  readonly call: SentCall
}

/** A call before an enclave is chosen. All its requests have the same nonce. */
export type DraftCall = {
  readonly sends: CallSends
  /** The notary that the caller itself demands. Null: the client chooses. */
  readonly notary: string | null
  /** What is hashed of the call, but its nonce and its notary. */
  readonly name: Json
  readonly isKeyed: boolean
  /** Throws AffidavitError `invalid_request`. */
  to(notary: string): PreparedCall
}

/**
 * Prepares the demands of a call: a nonce, the credential, the enclave, the place in its session,
 * the keys of attested providers. The demands are in the body, or in a header if the dialect has no
 * member for them. An encrypted call also has its hashed headers in the body: the gateway can
 * neither read nor change them. A repeat of a call in `repeated` gets the same nonce. Throws
 * AffidavitError `invalid_request`, and `no_attested_provider` if no attested provider has a
 * demanded key.
 */
export function draftCall(given: GivenCall, repeated: Pick<RepeatedCalls, 'take'>): DraftCall {
  const { form, headers, body, credential, place } = given
  const request = readRequest(body)
  const own = readDemands(given, request)
  if (place !== null && own.session !== undefined)
    throw new AffidavitError(
      'invalid_request',
      `expected no ${DEMANDS_MEMBER}.session: the session of this client sets it`,
    )
  const key = headers.get('idempotency-key')
  const keys = acceptKeys(own, given)
  const name: Json = [
    form.dialect.name,
    key,
    encodeHex(sha256(body)),
    { ...hashedOf(form, request, headers) },
    credential === null ? null : encodeHex(sha256(encodeUtf8(credential))),
    place === null ? null : { ...place },
    [...(keys.provider_keys ?? [])],
  ]
  const sends = own.nonce === undefined ? (repeated.take(name) ?? newSends()) : newSends(own.nonce)
  const { nonce } = sends
  const demand = credential === null ? 'operator' : { sha256: digestCredential(nonce, credential) }
  return {
    sends,
    notary: own.notary ?? null,
    name,
    isKeyed: key !== null,
    to(notary) {
      const demands: SentDemands = {
        ...own,
        nonce,
        credential: own.credential ?? demand,
        notary,
        ...(place === null ? {} : { session: place }),
        ...keys,
      }
      const sent = placeDemands(given, request, demands)
      sent.headers.set(NOTARY_HEADER, notary)
      if (given.isEncrypted) stateAnswerTokens(sent.headers, { form, request })
      return {
        ...sent,
        call: {
          dialect: form.dialect.name,
          request: requestOf(form, sent),
          sends,
          isOwnNonce: own.nonce !== undefined,
          notary,
          credential: demands.credential,
          providerKeys: demands.provider_keys ?? null,
          isIdempotent: key !== null,
          isEncrypted: given.isEncrypted,
        },
      }
    },
  }
}

/** A gateway with a budget reserves these tokens, and cannot read the request. */
function stateAnswerTokens(
  headers: Headers,
  { form, request }: { readonly form: CallDialect; readonly request: JsonObject },
): void {
  const tokens = answerBound(form.dialect.name, request)
  const { n = null } = request
  if (tokens !== null && (n === null || isCount(n)))
    headers.set(ANSWER_TOKENS_HEADER, String(tokens * Math.max(1, n ?? 1)))
}

/**
 * Returns the keys of attested providers. If the call demands keys, returns only the keys in both
 * lists.
 */
function acceptKeys(
  { provider_keys: own }: Demands,
  { providerKeys }: GivenCall,
): Pick<Demands, 'provider_keys'> {
  if (providerKeys === null) return {}
  const keys = own === undefined ? providerKeys : own.filter((key) => providerKeys.includes(key))
  if (keys.length > 0) return { provider_keys: keys }
  throw new AffidavitError(
    'no_attested_provider',
    `expected ${DEMANDS_MEMBER}.provider_keys with a key of an attested provider`,
  )
}

type SentDemands = Demands & {
  readonly nonce: string
  readonly credential: CredentialDemand
  readonly notary: string
}
type Sent = Pick<PreparedCall, 'headers' | 'body'>

/** Adds the demands to the body or a header. Rewrites a body with demands as canonical JSON. */
function placeDemands(
  { form, headers: given, body, isEncrypted }: GivenCall,
  request: JsonObject,
  demands: SentDemands,
): Sent {
  const headers = new Headers(given)
  // fetch sets the length of the new body.
  headers.delete('content-length')
  headers.delete(DEMANDS_HEADER)
  const isTheirs = Object.hasOwn(request, DEMANDS_MEMBER)
  if (!form.hasDemandsInBody && !isEncrypted) {
    headers.set(DEMANDS_HEADER, encodeBase64Url(encodeUtf8(JSON.stringify(demands))))
    const { [DEMANDS_MEMBER]: _, ...rest } = request
    return { headers, body: isTheirs ? canonicalBytes(rest) : new Uint8Array(body) }
  }
  const names = DIALECT_HEADERS[form.dialect.name]
  const { [DEMANDS_HEADER]: _, ...hashed } = hashedOf(form, request, given)
  const placed = names.length === 0 ? demands : { ...demands, headers: hashed }
  for (const name of names) headers.delete(name)
  return {
    headers,
    body: isTheirs
      ? canonicalBytes({ ...request, [DEMANDS_MEMBER]: placed })
      : addDemands(body, placed),
  }
}

/** Returns the request in the form that is hashed and recorded. */
function requestOf(form: CallDialect, { body, headers }: Sent): JsonObject {
  const request = readRequest(body)
  return form.dialect.requestOf(request, hashedOf(form, request, headers))
}

function hashedOf({ dialect }: CallDialect, request: JsonObject, headers: Headers): CallHeaders {
  const given = Object.fromEntries(headers)
  return withErrorCode('invalid_request', () => hashedHeaders(dialect.name, request, given))
}

function readDemands({ form, headers }: GivenCall, request: JsonObject): Demands {
  const { dialect } = form
  const hashed = hashedOf(form, request, headers)
  return withoutJsonError(`the header ${DEMANDS_HEADER}`, () =>
    withErrorCode('invalid_request', () => dialect.demandsOf(dialect.requestOf(request, hashed))),
  )
}

function readRequest(body: Uint8Array): JsonObject {
  const request = withoutJsonError('the body', () => parseStrictJson(body))
  if (isJsonObject(request)) return request
  throw new AffidavitError('invalid_request', 'expected the body to be a JSON object')
}

function withoutJsonError<Type>(what: string, read: () => Type): Type {
  try {
    return read()
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause
    throw new AffidavitError('invalid_request', `${what}: ${cause.message}`, { cause })
  }
}

/** Adds the demands to the body. All other bytes stay unchanged. */
function addDemands(body: Uint8Array, demands: Demands): Uint8Array<ArrayBuffer> {
  const text = new TextDecoder().decode(body).trimStart()
  const rest = text.slice(1)
  const separator = rest.trimStart().startsWith('}') ? '' : ','
  const member = `"${DEMANDS_MEMBER}":${JSON.stringify(demands)}`
  return new Uint8Array(encodeUtf8(`{${member}${separator}${rest}`))
}

/** Returns canonical JSON text. It has the same hash as the caller's text. */
function canonicalBytes(request: Json): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encodeUtf8(canonicalizeJson(request)))
}
