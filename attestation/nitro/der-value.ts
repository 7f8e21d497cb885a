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
  const match = /^(\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(latin1(content))
  if (!match || (match[1] === undefined) !== (tag === DER_TAGS.utcTime)) return null
  const [century, year = '', month = '', day = '', hour = '', minute = '', second = ''] = match.slice(1)
  const fullYear =
    century === undefined ? Number(year) + (Number(year) < 50 ? 2000 : 1900) : `${century}${year}`
  const timestamp = Date.parse(`${fullYear}-${month}-${day}T${hour}:${minute}:${second}Z`)
  if (Number.isNaN(timestamp)) return null
  return new Date(timestamp).toISOString().slice(8, 13) === `${day}T${hour}` ? timestamp : null
}

/** Dotted form of an OBJECT IDENTIFIER's contents that checkDerValue accepted. */
export function decodeObjectIdentifier(content: Uint8Array): string {
  const arcs: bigint[] = []
  let arc = 0n
  for (const byte of content) {
    arc = arc * 128n + BigInt(byte & 0x7f)
    if (byte >= 0x80) continue
    arcs.push(arc)
    arc = 0n
  }
  const [first = 0n, ...rest] = arcs
  const root = first < 80n ? first / 40n : 2n
  return [root, first - root * 40n, ...rest].join('.')
}

/** Text of a contents of single bytes, each one character. */
export function latin1(content: Uint8Array): string {
  return String.fromCharCode(...content)
}

const PRINTABLE = /^[A-Za-z0-9 '()+,\-./:=?]*$/
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function isBoolean(content: Uint8Array): boolean {
  return content.length === 1 && (content[0] === 0 || content[0] === 0xff)
}

function isInteger(content: Uint8Array): boolean {
  const [first, second = 0] = content
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
  if (content.length === 0 || (content.at(-1) ?? 0) >= 0x80) return false
  return content.every((byte, index) => byte !== 0x80 || (index > 0 && (content[index - 1] ?? 0) >= 0x80))
}

function isUtf8(content: Uint8Array): boolean {
  try {
    strictUtf8.decode(content)
    return true
  } catch {
    return false
  }
}
