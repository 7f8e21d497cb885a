/*
 * Writer for the DER (X.690) that an X.509 certificate needs. Every function gives the complete encoding of one
 * element; constructed ones take elements that are encoded already. Throws RangeError for one over 65,535 bytes.
 */

/** SEQUENCE of the parts in this order. */
export function derSequence(...parts: readonly Uint8Array[]): Uint8Array {
  return encodeElement(TAG.sequence, ...parts)
}

/** SET of the parts. DER sorts them: with more than one, the order is the caller's to get right. */
export function derSet(...parts: readonly Uint8Array[]): Uint8Array {
  return encodeElement(TAG.set, ...parts)
}

/** `[number] EXPLICIT` or a constructed context tag. */
export function derContext(number: number, ...parts: readonly Uint8Array[]): Uint8Array {
  return encodeElement(0xa0 | number, ...parts)
}

/** `[number] IMPLICIT` over a primitive value. */
export function derContextPrimitive(number: number, value: Uint8Array): Uint8Array {
  return encodeElement(0x80 | number, value)
}

/** A non-negative integer from big-endian bytes; leading zeros are dropped. */
export function derInteger(bytes: Uint8Array): Uint8Array {
  const first = bytes.findIndex((byte) => byte !== 0)
  const significant = first < 0 ? Uint8Array.of(0) : bytes.subarray(first)
  const signed = (significant[0] ?? 0) >= 0x80 ? Buffer.concat([Uint8Array.of(0), significant]) : significant
  return encodeElement(TAG.integer, signed)
}

/** BOOLEAN: 0xff or 0x00, as DER has it. */
export function derBoolean(value: boolean): Uint8Array {
  return encodeElement(TAG.boolean, Uint8Array.of(value ? 0xff : 0x00))
}

/** OCTET STRING. */
export function derOctetString(value: Uint8Array): Uint8Array {
  return encodeElement(TAG.octetString, value)
}

/** Whole bytes; `unusedBits` of the last one are padding. */
export function derBitString(value: Uint8Array, unusedBits = 0): Uint8Array {
  return encodeElement(TAG.bitString, Uint8Array.of(unusedBits), value)
}

/** `1.2.840.10045.4.3.3` → its OBJECT IDENTIFIER. */
export function derObjectIdentifier(dotted: string): Uint8Array {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return encodeElement(
    TAG.objectIdentifier,
    Uint8Array.from([first * 40 + second, ...rest].flatMap(toBase128)),
  )
}

/** UTF8String. */
export function derUtf8String(value: string): Uint8Array {
  return encodeElement(TAG.utf8String, Buffer.from(value, 'utf8'))
}

/** PrintableString; `value` must consist of its characters (X.680, 41.4), which is not checked. */
export function derPrintableString(value: string): Uint8Array {
  return encodeElement(TAG.printableString, Buffer.from(value, 'ascii'))
}

/** UTCTime through 2049, GeneralizedTime after (RFC 5280, 4.1.2.5). Unix seconds in. */
export function derTime(unixSeconds: number): Uint8Array {
  const digits = new Date(unixSeconds * 1000).toISOString().replace(/[-:T]|\.\d+/g, '')
  const generalized = Number(digits.slice(0, 4)) >= 2050
  return encodeElement(
    generalized ? TAG.generalizedTime : TAG.utcTime,
    Buffer.from(generalized ? digits : digits.slice(2), 'ascii'),
  )
}

const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  objectIdentifier: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const

function encodeElement(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return Buffer.concat([Uint8Array.of(tag, ...encodeLength(length)), ...parts])
}

function encodeLength(length: number): readonly number[] {
  if (length < 0x80) return [length]
  if (length <= 0xff) return [0x81, length]
  if (length <= 0xffff) return [0x82, length >> 8, length & 0xff]
  throw new RangeError(`no certificate part is ${length} bytes long`)
}

function toBase128(value: number): readonly number[] {
  const digits = [value & 0x7f]
  for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128))
    digits.unshift((rest & 0x7f) | 0x80)
  return digits
}
