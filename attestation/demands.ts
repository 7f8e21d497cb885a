import { concatBytes, decodeHex, encodeHex, encodeUtf8, HASH_BYTES, sha256 } from './bytes.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

const { hexOf, invalid, membersOf, objectOf, textOf } = formsOf('invalid_demand')

/** The member of a request in which its caller states its demands to the enclave. */
export const DEMANDS_MEMBER = 'affidavit'

/**
 * What a caller demands for a call (formats.md, Demands of a caller). Hashed with the request, but
 * not sent to the provider.
 */
export type Demands = {
  /** 16 to 64 bytes in lower-case hex. */
  readonly nonce?: string
  /** Which credential the enclave may present to the provider. */
  readonly credential?: CredentialDemand
  /**
   * The headers of the call's dialect, by their lower-case names. They replace those of the HTTP
   * request, which are not encrypted.
   */
  readonly headers?: Readonly<Record<string, string>>
}

/** 'operator': not a caller's credential. Else only the caller's credential with this digest. */
export type CredentialDemand = 'operator' | { readonly sha256: string }

/** The form of a nonce. A shorter nonce could be guessed. */
export const NONCE_FORM = /^([0-9a-f]{2}){16,64}$/

/**
 * Returns the demands in a request (attacker-controlled). Null without demands. Throws FormatError
 * `invalid_demand` for any other form: no caller may rely on a demand that the enclave ignores.
 */
export function demandsOf(request: JsonObject): Demands | null {
  const value = memberOf(request, DEMANDS_MEMBER) ?? null
  if (value === null) return null
  const names = ['nonce', 'credential', 'headers'] as const
  const given = isJsonObject(value) ? names.filter((name) => Object.hasOwn(value, name)) : names
  const { nonce, credential, headers } = membersOf(value, DEMANDS_MEMBER, given) as Partial<
    Record<(typeof names)[number], Json>
  >
  if (credential !== undefined && nonce === undefined)
    throw invalid(`${DEMANDS_MEMBER}.credential`, 'beside a nonce')
  return {
    ...(nonce === undefined ? {} : { nonce: textOf(nonce, NONCE_NAME, NONCE) }),
    ...(credential === undefined ? {} : { credential: parseCredential(credential) }),
    ...(headers === undefined ? {} : { headers: parseHeaders(headers) }),
  }
}

function parseHeaders(value: Json): Readonly<Record<string, string>> {
  const name = `${DEMANDS_MEMBER}.headers`
  return Object.fromEntries(
    Object.entries(objectOf(value, name)).map(([header, text]) => [header, textOf(text, name)]),
  )
}

const NONCE_NAME = `${DEMANDS_MEMBER}.nonce`
const NONCE = { ...formOf(NONCE_FORM), expectation: '16 to 64 bytes in lower-case hex' }

function parseCredential(value: Json): CredentialDemand {
  const name = `${DEMANDS_MEMBER}.credential`
  if (value === 'operator') return value
  if (!isJsonObject(value)) throw invalid(name, '"operator" or an object of sha256')
  return { sha256: hexOf(membersOf(value, name, ['sha256']).sha256, `${name}.sha256`, HASH_BYTES) }
}

/**
 * The digest (hex) of a caller's credential, for `affidavit.credential`: SHA-256 of `affidavit
 * credential`, a zero byte, the bytes of the nonce, and the credential in UTF-8, without `Bearer `.
 * With the nonce, digests cannot be compared between calls or guessed beforehand.
 */
export function digestCredential(nonce: string, credential: string): string {
  const label = encodeUtf8('affidavit credential\0')
  return encodeHex(sha256(concatBytes(label, decodeHex(nonce), encodeUtf8(credential))))
}
