import { concatBytes, decodeHex, encodeHex, encodeUtf8, HASH_BYTES, sha256 } from './bytes.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

const { arrayOf, countOf, hexOf, invalid, membersOf, objectOf, textOf } = formsOf('invalid_demand')

/** The request's member with the caller's demands on the enclave. */
export const DEMANDS_MEMBER = 'affidavit'

/**
 * What a caller demands for a call (formats.md, Demands of a caller). The demands are hashed with
 * the request, but not sent to the provider.
 */
export type Demands = {
  /** 16 to 64 bytes in lower-case hex. */
  readonly nonce?: string
  /** Which credential the enclave may present to the provider. */
  readonly credential?: CredentialDemand
  readonly session?: SessionPlace
  /**
   * The headers of the call's dialect, by their lower-case names. They replace the headers of the
   * HTTP request, because HTTP headers are not encrypted.
   */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * SHA-256 (hex) of subjectPublicKeyInfo. The enclave sends nothing to a provider whose leaf
   * certificate has another key.
   */
  readonly provider_keys?: readonly string[]
  /** The enclave that may make the call: 0x and 20 bytes in lower-case hex. */
  readonly notary?: string
}

/**
 * 'operator': never a caller's credential. `sha256`: only the caller's credential with this digest.
 */
export type CredentialDemand = 'operator' | { readonly sha256: string }

/** The place of a call in its session. A session is one run of an agent. */
export type SessionPlace = {
  /** 16 to 32 bytes in lower-case hex. */
  readonly id: string
  /** The number of calls before this one in the session. */
  readonly n: number
  /** Hash of the call before this one, 64 hex digits. Null exactly for the first call. */
  readonly previous: string | null
  /** States that no call follows in the session. */
  readonly last?: true
}

/** A shorter nonce could be guessed. */
export const NONCE_FORM = /^([0-9a-f]{2}){16,64}$/

/**
 * Returns the demands in a request (attacker-controlled). Null without demands. Throws FormatError
 * as parseDemands does.
 */
export function demandsOf(request: JsonObject): Demands | null {
  const value = memberOf(request, DEMANDS_MEMBER) ?? null
  return value === null ? null : parseDemands(value)
}

/**
 * Reads the demands in attacker-controlled `value`. Throws FormatError `invalid_demand` for an
 * unknown form, because a caller must not rely on a demand that the enclave ignores.
 */
export function parseDemands(value: Json): Demands {
  const names = ['nonce', 'credential', 'session', 'headers', 'provider_keys', 'notary'] as const
  const given = isJsonObject(value) ? names.filter((name) => Object.hasOwn(value, name)) : names
  const demands: Partial<Record<(typeof names)[number], Json>> = membersOf(
    value,
    DEMANDS_MEMBER,
    given,
  )
  const { nonce, credential, session, headers, provider_keys: keys, notary } = demands
  if (credential !== undefined && nonce === undefined)
    throw invalid(`${DEMANDS_MEMBER}.credential`, 'beside a nonce')
  return {
    ...(nonce === undefined ? {} : { nonce: textOf(nonce, NONCE_NAME, NONCE) }),
    ...(credential === undefined ? {} : { credential: parseCredential(credential) }),
    ...(session === undefined ? {} : { session: parseSessionPlace(session) }),
    ...(headers === undefined ? {} : { headers: parseHeaders(headers) }),
    ...(keys === undefined
      ? {}
      : { provider_keys: parseProviderKeys(keys, `${DEMANDS_MEMBER}.provider_keys`) }),
    ...(notary === undefined ? {} : { notary: textOf(notary, NOTARY_NAME, NOTARY) }),
  }
}

export const PROVIDER_KEYS_MAX = 64

function parseProviderKeys(value: Json, name: string): readonly string[] {
  const keys = arrayOf(value, name, { min: 1, max: PROVIDER_KEYS_MAX }, ' keys')
  return keys.map((key, at) => hexOf(key, `${name}.${at}`, HASH_BYTES))
}

function parseHeaders(value: Json): Readonly<Record<string, string>> {
  const name = `${DEMANDS_MEMBER}.headers`
  return Object.fromEntries(
    Object.entries(objectOf(value, name)).map(([header, text]) => [header, textOf(text, name)]),
  )
}

const NONCE_NAME = `${DEMANDS_MEMBER}.nonce`
const NONCE = { ...formOf(NONCE_FORM), expectation: '16 to 64 bytes in lower-case hex' }
const NOTARY_NAME = `${DEMANDS_MEMBER}.notary`
export const NOTARY = {
  form: /^0x[0-9a-f]{40}$/,
  expectation: '0x and 20 bytes in lower-case hex',
}
const SESSION_NAME = `${DEMANDS_MEMBER}.session`

export const SESSION_ID = {
  form: /^([0-9a-f]{2}){16,32}$/,
  expectation: '16 to 32 bytes in lower-case hex',
}

function parseSessionPlace(value: Json): SessionPlace {
  const isLast = isJsonObject(value) && Object.hasOwn(value, 'last')
  const members = ['id', 'n', 'previous', ...(isLast ? (['last'] as const) : [])] as const
  const place = membersOf(value, SESSION_NAME, members)
  const n = countOf(place.n, `${SESSION_NAME}.n`)
  const { previous } = place
  if ((previous === null) !== (n === 0))
    throw invalid(`${SESSION_NAME}.previous`, 'null exactly where n is 0')
  if (isLast && place.last !== true) throw invalid(`${SESSION_NAME}.last`, 'true or left out')
  return {
    id: textOf(place.id, `${SESSION_NAME}.id`, SESSION_ID),
    n,
    previous: previous === null ? null : hexOf(previous, `${SESSION_NAME}.previous`, HASH_BYTES),
    ...(isLast ? { last: true } : {}),
  }
}

function parseCredential(value: Json): CredentialDemand {
  const name = `${DEMANDS_MEMBER}.credential`
  if (value === 'operator') return value
  if (!isJsonObject(value)) throw invalid(name, '"operator" or an object of sha256')
  return { sha256: hexOf(membersOf(value, name, ['sha256']).sha256, `${name}.sha256`, HASH_BYTES) }
}

/**
 * Returns the digest (hex) of a caller's credential, for `affidavit.credential`: SHA-256 of
 * `affidavit credential`, a zero byte, the bytes of the nonce, and the credential in UTF-8, without
 * `Bearer `. Because of the nonce, digests cannot be compared between calls or guessed beforehand.
 */
export function digestCredential(nonce: string, credential: string): string {
  const label = encodeUtf8('affidavit credential\0')
  return encodeHex(sha256(concatBytes(label, decodeHex(nonce), encodeUtf8(credential))))
}
