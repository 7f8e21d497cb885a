import { JsonError } from './json-error.ts'

/** Decodes UTF-8 `bytes`. Keeps a byte order mark as U+FEFF. Throws JsonError `invalid_utf8`. */
export function decodeUtf8(bytes: Uint8Array): string {
  try {
    return fatalDecoder.decode(bytes)
  } catch {
    const offset = offsetOfFault(bytes)
    throw new JsonError('invalid_utf8', 'expected UTF-8', { path: [], offset })
  }
}

const fatalDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const lenientDecoder = new TextDecoder('utf-8', { ignoreBOM: true })

/** The offset of the first invalid byte, where a lenient decoder writes U+FFFD. */
function offsetOfFault(bytes: Uint8Array): number {
  let offset = 0
  for (const character of lenientDecoder.decode(bytes)) {
    const code = character.codePointAt(0) ?? 0
    const isReplacement = code === 0xfffd
    const isSpelled =
      bytes[offset] === 0xef && bytes[offset + 1] === 0xbf && bytes[offset + 2] === 0xbd
    if (isReplacement && !isSpelled) return offset
    offset += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4
  }
  return offset
}
