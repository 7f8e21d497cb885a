import { sha256 as nobleSha256 } from '@noble/hashes/sha2.js'
import { FormatError } from './errors.ts'

/** Lower-case hex, without prefix. */
export function encodeHex(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += HEX_OF_BYTE[byte]
  return text
}

/** The bytes of hex `text` (upper or lower case, 0x optional). Throws FormatError `invalid_hex`. */
export function decodeHex(text: string): Uint8Array {
  const start = text.startsWith('0x') ? 2 : 0
  const length = (text.length - start) / 2
  if (!Number.isInteger(length))
    throw new FormatError('invalid_hex', 'expected an even number of hex digits')
  const bytes = new Uint8Array(length)
  for (let index = 0; index < length; index++) {
    const high = hexDigit(text.charCodeAt(start + 2 * index))
    const low = hexDigit(text.charCodeAt(start + 2 * index + 1))
    if (high < 0 || low < 0)
      throw new FormatError('invalid_hex', `expected hex digits in byte ${index}`)
    bytes[index] = high * 16 + low
  }
  return bytes
}

/** Standard base64 (RFC 4648 section 4) of `bytes`, padded. */
export function encodeBase64(bytes: Uint8Array): string {
  const digits = new Uint8Array(4 * Math.ceil(bytes.length / 3))
  let length = 0
  for (let index = 0; index < bytes.length; index += 3) {
    const group =
      ((bytes[index] ?? 0) << 16) | ((bytes[index + 1] ?? 0) << 8) | (bytes[index + 2] ?? 0)
    for (let shift = 18; shift >= 0; shift -= 6)
      digits[length++] = BASE64_CODES[(group >> shift) & 63] ?? 0
  }
  const missing = (3 - (bytes.length % 3)) % 3
  digits.fill(PADDING_CODE, digits.length - missing)
  // Decodes all digits at once, because a text that is joined from many pieces is slow to read.
  return utf8Decoder.decode(digits)
}

/**
 * The bytes of standard base64 (RFC 4648 section 4): padded, no white space, unused bits zero. So
 * two different texts never decode to the same bytes. Throws FormatError `invalid_base64`.
 */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  if (text.length % 4 !== 0)
    throw new FormatError('invalid_base64', 'expected a multiple of 4 characters')
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0
  const bytes = new Uint8Array((text.length / 4) * 3 - padding)
  const digits = text.length - padding
  let bits = 0
  let bitCount = 0
  let length = 0
  for (let index = 0; index < digits; index++) {
    const value = VALUE_OF_BASE64[text.charCodeAt(index)] ?? -1
    if (value < 0) throw new FormatError('invalid_base64', `unexpected character at ${index}`)
    bits = ((bits << 6) | value) & 0xffff
    bitCount += 6
    if (bitCount < 8) continue
    bitCount -= 8
    bytes[length++] = bits >> bitCount
  }
  if ((bits & ((1 << bitCount) - 1)) !== 0)
    throw new FormatError('invalid_base64', 'unused bits of the last digit are not zero')
  return bytes
}

/** RFC 4648 section 5, without padding. */
export function encodeBase64Url(bytes: Uint8Array): string {
  return encodeBase64(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
}

/**
 * The bytes of base64url without padding (RFC 4648 section 5). Otherwise as strict as decodeBase64.
 */
export function decodeBase64Url(text: string): Uint8Array<ArrayBuffer> {
  if (/[+/=]/.test(text)) throw new FormatError('invalid_base64', 'expected base64url, not padded')
  const standard = text.replaceAll('-', '+').replaceAll('_', '/')
  return decodeBase64(standard.padEnd(Math.ceil(text.length / 4) * 4, '='))
}

/** UTF-8 bytes of `text`. The caller must exclude lone surrogates, which become U+FFFD. */
export function encodeUtf8(text: string): Uint8Array {
  return utf8.encode(text)
}

export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let offset = 0
  for (const part of parts) {
    joined.set(part, offset)
    offset += part.length
  }
  return joined
}

/** Compares in a time that depends only on the lengths, not on the bytes. */
export function equalBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false
  let difference = 0
  for (let index = 0; index < left.length; index++)
    difference |= (left[index] ?? 0) ^ (right[index] ?? 0)
  return difference === 0
}

/** Bytes of a SHA-256 or Keccak-256 hash. */
export const HASH_BYTES = 32

export function sha256(data: Uint8Array): Uint8Array {
  return nobleSha256(data)
}

const utf8 = new TextEncoder()
const utf8Decoder = new TextDecoder()

const HEX_OF_BYTE = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

const BASE64_DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

const BASE64_CODES = utf8.encode(BASE64_DIGITS)
const PADDING_CODE = '='.charCodeAt(0)

const VALUE_OF_BASE64 = valuesOf(BASE64_DIGITS)

function valuesOf(alphabet: string): Int8Array {
  const values = new Int8Array(128).fill(-1)
  for (let value = 0; value < alphabet.length; value++) values[alphabet.charCodeAt(value)] = value
  return values
}

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  const lower = code | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x61 + 10 : -1
}
