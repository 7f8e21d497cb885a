/**
 * Gives the value of the one CBOR item in `bytes`, which scanCbor accepted and which ends where
 * they do: maps become Map, byte strings views of `bytes`, integers of eight bytes bigint, all
 * others number. It checks nothing, for the scanner did: of anything else it gives something, or
 * throws RangeError.
 */
export function decodeScannedCbor(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return readItem({ bytes, view, at: 0 })
}

type Reader = { readonly bytes: Uint8Array; readonly view: DataView; at: number }

/** Additional information of an argument in the next eight bytes (RFC 8949 section 3). */
const EIGHT_BYTES = 27
const INDEFINITE = 31
const BREAK = 0xff

function readItem(reader: Reader): unknown {
  const first = reader.view.getUint8(reader.at++)
  const major = first >> 5
  const info = first & 31
  if (major === 5 && info === INDEFINITE) return readMap(reader, Number.POSITIVE_INFINITY)
  const argument = readArgument(reader, info)
  switch (major) {
    case 0:
      return argument
    case 1:
      return typeof argument === 'bigint' ? -1n - argument : -1 - argument
    case 2:
      return readBytes(reader, Number(argument))
    case 3:
      return text.decode(readBytes(reader, Number(argument)))
    case 4:
      return Array.from({ length: Number(argument) }, () => readItem(reader))
    case 5:
      return readMap(reader, Number(argument))
    default:
      return SIMPLE_VALUES.get(argument)
  }
}

/** As in the scanner: a leading U+FEFF is text like any other. */
const text = new TextDecoder('utf-8', { ignoreBOM: true })

/** Those that the scanner accepts. */
const SIMPLE_VALUES: ReadonlyMap<unknown, unknown> = new Map([
  [20, false],
  [21, true],
  [22, null],
])

function readArgument(reader: Reader, info: number): number | bigint {
  const { view, at } = reader
  if (info < 24) return info
  reader.at += 1 << (info - 24)
  if (info === EIGHT_BYTES) return view.getBigUint64(at)
  if (info === 26) return view.getUint32(at)
  return info === 25 ? view.getUint16(at) : view.getUint8(at)
}

function readBytes(reader: Reader, length: number): Uint8Array {
  const start = reader.at
  reader.at += length
  return reader.bytes.subarray(start, reader.at)
}

/** Of so many pairs; of infinitely many it ends at the break. */
function readMap(reader: Reader, pairs: number): ReadonlyMap<unknown, unknown> {
  const map = new Map<unknown, unknown>()
  for (let pair = 0; pair < pairs; pair++) {
    if (pairs === Number.POSITIVE_INFINITY && reader.view.getUint8(reader.at) === BREAK) break
    const key = readItem(reader)
    map.set(key, readItem(reader))
  }
  return map
}
