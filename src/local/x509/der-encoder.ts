/** Does not check that `content` fits the tag. */
export function encodeDer(tag: number, ...content: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const body = Buffer.concat(content)
  return bytesOf(Buffer.concat([Uint8Array.of(tag), encodeLength(body.length), body]))
}

/** Minimal, for lengths under 65,536. */
export function encodeLength(length: number): Uint8Array {
  if (length < 0x80) return Uint8Array.of(length)
  if (length < 0x100) return Uint8Array.of(0x81, length)
  return Uint8Array.of(0x82, length >> 8, length & 0xff)
}

export const sequence = (...items: readonly Uint8Array[]) => encodeDer(0x30, ...items)
export const set = (...items: readonly Uint8Array[]) => encodeDer(0x31, ...items)
export const octetString = (content: Uint8Array) => encodeDer(0x04, content)
export const bitString = (content: Uint8Array, unused = 0) =>
  encodeDer(0x03, Uint8Array.of(unused), content)
export const derBoolean = (value: boolean) => encodeDer(0x01, Uint8Array.of(value ? 0xff : 0))
export const utf8String = (text: string) => encodeDer(0x0c, Buffer.from(text))
export const printableString = (text: string) => encodeDer(0x13, Buffer.from(text))

/** Minimal INTEGER of a value that is not negative. */
export function derInteger(value: bigint | number): Uint8Array<ArrayBuffer> {
  const digits = value.toString(16)
  const even = digits.length % 2 === 0 ? digits : `0${digits}`
  const bytes = Buffer.from(even, 'hex')
  return encodeDer(0x02, (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Uint8Array.of(0), bytes]) : bytes)
}

export function objectIdentifier(dotted: string): Uint8Array<ArrayBuffer> {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return encodeDer(0x06, Uint8Array.from([first * 40 + second, ...rest].flatMap(base128)))
}

/** UTCTime before 2050, GeneralizedTime from then on (RFC 5280, 4.1.2.5). */
export function time(date: Date): Uint8Array<ArrayBuffer> {
  const digits = date.toISOString().replaceAll(/[-:T]|\.\d+/g, '')
  return date.getUTCFullYear() < 2050
    ? encodeDer(0x17, Buffer.from(digits.slice(2)))
    : encodeDer(0x18, Buffer.from(digits))
}

function base128(arc: number): number[] {
  const digits = [arc & 0x7f]
  for (let left = arc >> 7; left > 0; left >>= 7) digits.unshift((left & 0x7f) | 0x80)
  return digits
}

function bytesOf(buffer: Buffer): Uint8Array<ArrayBuffer> {
  return new Uint8Array(buffer)
}
