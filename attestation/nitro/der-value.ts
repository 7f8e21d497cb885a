/** Identifier octets (X.690 section 8.1.2) of what certificates are made of. */
export const DER_TAGS = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  objectIdentifier: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  teletexString: 0x14,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  bmpString: 0x1e,
  sequence: 0x30,
  set: 0x31,
} as const

/**
 * Says what a primitive universal value (identifier octet `tag`, contents `content`) should have been, or null when it
 * is the distinguished encoding (X.690 sections 8, 10 and 11) of a type that certificates use.
 */
export function checkDerValue(tag: number, content: Uint8Array): string | null {
  switch (tag) {
    case DER_TAGS.boolean:
      return isBoolean(content) ? null : 'a BOOLEAN of 00 or ff'
    case DER_TAGS.integer:
      return isInteger(content) ? null : 'a minimal INTEGER'
    case DER_TAGS.bitString:
      return isBitString(content) ? null : 'a BIT STRING with unused bits zero'
    case DER_TAGS.octetString:
      return null
    case DER_TAGS.null:
      return content.length === 0 ? null : 'an empty NULL'
    case DER_TAGS.objectIdentifier:
      return isObjectIdentifier(content) ? null : 'a minimal OBJECT IDENTIFIER'
    case DER_TAGS.utf8String:
      return isUtf8(content) ? null : 'UTF-8 in UTF8String'
    case DER_TAGS.printableString:
      return PRINTABLE.test(latin1(content)) ? null : 'the characters of PrintableString'
    case DER_TAGS.teletexString:
      return null
    case DER_TAGS.ia5String:
      return content.every((byte) => byte < 0x80) ? null : 'ASCII in IA5String'
    case DER_TAGS.utcTime:
    case DER_TAGS.generalizedTime:
      return decodeTime(tag, content) === null ? 'a time as YY[YY]MMDDhhmmssZ' : null
    case DER_TAGS.bmpString:
      return content.length % 2 === 0 ? null : 'whole characters in BMPString'
    default:
      return 'a type that certificates are made of'
  }
}

/**
 * Unix milliseconds of a UTCTime or GeneralizedTime in the form of RFC 5280 section 4.1.2.5 (seconds, Zulu, no
 * fraction); null for any other form and for days that do not exist.
 */
export function decodeTime(tag: number, content: Uint8Array): number | null {
  const yearDigits = tag === DER_TAGS.utcTime ? 2 : 4
  if (content.length !== yearDigits + 11 || content.at(-1) !== ZULU) return null
  const pairs = [0, 1, 2, 3, 4, 5].map((index) => pairAt(content, yearDigits - 2 + 2 * index))
  const [low = -1, month = -1, day = -1, hour = -1, minute = -1, second = -1] = pairs
  const century = yearDigits === 4 ? pairAt(content, 0) : low < 50 ? 20 : 19
  if (century < 1 || pairs.includes(-1) || hour > 23 || minute > 59 || second > 59) return null
  const timeMs = Date.UTC(century * 100 + low, month - 1, day, hour, minute, second)
  const date = new Date(timeMs)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? timeMs : null
}

/** Dotted form of an OBJECT IDENTIFIER's contents that checkDerValue accepted. */
export function decodeObjectIdentifier(content: Uint8Array): string {
  let text = ''
  let arc = 0
  for (const byte of content) {
    if (arc > ARC_EXACT_MAX) return decodeWideIdentifier(content)
    arc = arc * 128 + (byte & 0x7f)
    if (byte >= 0x80) continue
    text += text === '' ? firstArcs(BigInt(arc)) : `.${arc}`
    arc = 0
  }
  return text
}

/** Arcs up to this stay exact when seven bits are added. */
const ARC_EXACT_MAX = 2 ** 46

/** For arcs that no registered identifier needs, but a certificate may hold. */
function decodeWideIdentifier(content: Uint8Array): string {
  let text = ''
  let arc = 0n
  for (const byte of content) {
    arc = arc * 128n + BigInt(byte & 0x7f)
    if (byte >= 0x80) continue
    text += text === '' ? firstArcs(arc) : `.${arc}`
    arc = 0n
  }
  return text
}

/** The first two arcs share a number (X.690 section 8.19.4). */
function firstArcs(joined: bigint): string {
  const root = joined < 80n ? joined / 40n : 2n
  return `${root}.${joined - root * 40n}`
}

/** Text of a contents of single bytes, each one character. */
export function latin1(content: Uint8Array): string {
  return String.fromCharCode(...content)
}

const ZULU = 0x5a

/** Number that two digits at `offset` write, or -1. */
function pairAt(content: Uint8Array, offset: number): number {
  const tens = (content[offset] ?? 0) - 0x30
  const units = (content[offset + 1] ?? 0) - 0x30
  return tens >= 0 && tens <= 9 && units >= 0 && units <= 9 ? 10 * tens + units : -1
}

const PRINTABLE = /^[A-Za-z0-9 '()+,\-./:=?]*$/
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function isBoolean(content: Uint8Array): boolean {
  return content.length === 1 && (content[0] === 0 || content[0] === 0xff)
}

function isInteger(content: Uint8Array): boolean {
  const first = content[0]
  const second = content[1] ?? 0
  if (first === undefined) return false
  const isPadded = (first === 0 && second < 0x80) || (first === 0xff && second >= 0x80)
  return content.length === 1 || !isPadded
}

function isBitString(content: Uint8Array): boolean {
  const unused = content[0]
  if (unused === undefined || unused > 7) return false
  if (content.length === 1) return unused === 0
  return ((content.at(-1) ?? 0) & ((1 << unused) - 1)) === 0
}

function isObjectIdentifier(content: Uint8Array): boolean {
  let isFirstOfArc = true
  for (const byte of content) {
    if (isFirstOfArc && byte === 0x80) return false
    isFirstOfArc = byte < 0x80
  }
  return content.length > 0 && isFirstOfArc
}

function isUtf8(content: Uint8Array): boolean {
  try {
    strictUtf8.decode(content)
    return true
  } catch {
    return false
  }
}
