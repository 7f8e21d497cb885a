import { decodeBase64 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { formsOf } from '../json/forms.ts'
import type { Json } from '../json/value.ts'
import { orNull } from '../or-null.ts'
import { ownMembers } from '../own-members.ts'

/** The value of `format` in all evidence. */
export const BUNDLE_FORMAT = 'affidavit-evidence'

/** Forms of the members of bundles, except hex texts: see `hexOf`. */
export const bundleForms = formsOf('invalid_bundle')

const { invalid } = bundleForms

/** Maximum bytes of an attestation document in a bundle. A document from AWS has about 5 KB. */
export const BUNDLE_DOCUMENT_BYTES_MAX = 16_384

/** The number of bytes that a hex text may have, and the prefix of the text (default: 0x). */
type HexForm = ({ readonly exactly: number } | { readonly max: number }) & {
  readonly prefix?: '' | '0x'
}

/** Throws FormatError `invalid_bundle` naming `name`. */
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
    throw invalid(name, `${prefix || 'no prefix'} and ${bytesMin} to ${bytesMax} bytes of hex`)
  return json
}

/** Returns a reader for standard base64 of 1 to `bytesMax` bytes. `invalid`: see formsOf. */
export function base64FormOf(invalid: (name: string, expectation: string) => FormatError) {
  return (json: Json | undefined, name: string, bytesMax: number): string => {
    const isBounded =
      typeof json === 'string' && json !== '' && json.length <= Math.ceil(bytesMax / 3) * 4
    const bytes = isBounded ? orNull(() => decodeBase64(json), FormatError) : null
    if (!isBounded || bytes === null || bytes.length > bytesMax)
      throw invalid(name, `standard base64 of 1 to ${bytesMax} bytes`)
    return json
  }
}

/**
 * Checks that an origin has the form of the enclave's table of providers (WHATWG URL Standard,
 * serialized): http or https; an IPv6 address, or a host of printable ASCII that has no upper case,
 * no escapes and no characters that end a host; a port, but not the scheme's default port. Throws
 * FormatError `invalid_bundle` naming `name`.
 */
export function originOf(text: string, name: string): string {
  if (text.length > ORIGIN_LENGTH_MAX || !ORIGIN.test(text) || DEFAULT_PORT.test(text))
    throw invalid(name, 'an origin such as https://host or https://host:8443')
  return text
}

/** The same limit as in enclave/providers/parse-table.ts. */
const ORIGIN_LENGTH_MAX = 'https://'.length + 300
const ORIGIN = /^https?:\/\/([!"$&-.0-9;=_-{}~]+|\[[0-9a-f:]+\])(:(0|[1-9][0-9]{0,4}))?$/
const DEFAULT_PORT = /^(http:.*:80|https:.*:443)$/

const LOWER_CASE_BYTES = /^(?:[0-9a-f]{2})*$/
