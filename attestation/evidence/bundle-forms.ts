import { decodeBase64 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { hasExactMembers, isJsonObject, type Json } from '../json/value.ts'
import { ownMembers } from '../own-members.ts'

/** Bytes of an attestation document in a bundle; one that AWS makes has about 5 KB. */
export const BUNDLE_DOCUMENT_BYTES_MAX = 16_384

/**
 * How many bytes a hex text may stand for, and what stands before it (0x unless said otherwise).
 */
type HexForm = ({ readonly exactly: number } | { readonly max: number }) & {
  readonly prefix?: '' | '0x'
}

/** Lower-case hex of this form. Throws FormatError `invalid_bundle` naming `name`. */
export function hexOf(json: Json | undefined, name: string, form: HexForm): string {
  const own = ownMembers(form)
  const { prefix = '0x' } = own
  const [bytesMin, bytesMax] = 'exactly' in own ? [own.exactly, own.exactly] : [1, own.max]
  const isRight =
    typeof json === 'string' &&
    json.length >= prefix.length + 2 * bytesMin &&
    json.length <= prefix.length + 2 * bytesMax &&
    json.startsWith(prefix) &&
    LOWER_CASE_BYTES.test(json.slice(prefix.length))
  if (!isRight)
    throw invalidBundle(
      name,
      `${prefix || 'no prefix'} and ${bytesMin} to ${bytesMax} bytes of hex`,
    )
  return json
}

/** Standard base64 of 1 to `bytesMax` bytes. Throws FormatError `invalid_bundle` naming `name`. */
export function base64Of(json: Json | undefined, name: string, bytesMax: number): string {
  const isBounded =
    typeof json === 'string' &&
    json !== '' &&
    json.length <= Math.ceil(bytesMax / 3) * BASE64_DIGITS
  if (!isBounded || (decodedLength(json) ?? Number.POSITIVE_INFINITY) > bytesMax)
    throw invalidBundle(name, `standard base64 of 1 to ${bytesMax} bytes`)
  return json
}

/** A whole number of 0 to 2^53-1. Throws FormatError `invalid_bundle` naming `name`. */
export function countOf(json: Json | undefined, name: string): number {
  if (typeof json !== 'number' || !Number.isSafeInteger(json) || json < 0)
    throw invalidBundle(name, 'a whole number from 0 to 2^53-1')
  return json
}

/**
 * An origin as the enclave's table of providers has it, which takes no other than the WHATWG URL
 * Standard serializes: http or https, a host of printable ASCII without upper case and without what
 * ends or escapes a host, or an IPv6 address; a port if it is not the scheme's own. Throws
 * FormatError `invalid_bundle` naming `name`.
 */
export function originOf(text: string, name: string): string {
  if (text.length > ORIGIN_LENGTH_MAX || !ORIGIN.test(text) || DEFAULT_PORT.test(text))
    throw invalidBundle(name, 'an origin such as https://host or https://host:8443')
  return text
}

/**
 * The members of an object that has exactly `names`. Throws FormatError `invalid_bundle` naming
 * `name`.
 */
export function membersOf<Name extends string>(
  json: Json,
  name: string,
  names: readonly Name[],
): Readonly<Record<Name, Json>> {
  if (!isJsonObject(json) || !hasExactMembers(json, names))
    throw invalidBundle(name, `an object of ${names.join(', ')}`)
  return json
}

/** What is thrown when the member `name` has not its form. */
export function invalidBundle(name: string, expectation: string): FormatError {
  return new FormatError('invalid_bundle', `expected ${name} to be ${expectation}`)
}

/** Of the form that enclave/providers/parse-table.ts takes. */
const ORIGIN_LENGTH_MAX = 'https://'.length + 300
const ORIGIN = /^https?:\/\/([!"$&-.0-9;=_-{}~]+|\[[0-9a-f:]+\])(:(0|[1-9][0-9]{0,4}))?$/
const DEFAULT_PORT = /^(http:.*:80|https:.*:443)$/

const LOWER_CASE_BYTES = /^(?:[0-9a-f]{2})*$/

/** Digits that stand for three bytes. */
const BASE64_DIGITS = 4

/** Null when the text is no base64. */
function decodedLength(text: string): number | null {
  try {
    return decodeBase64(text).length
  } catch {
    return null
  }
}
