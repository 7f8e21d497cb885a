/**
 * Names what attacker-controlled bytes are, by how they begin, if they are neither plain JSON nor
 * hex or base64. Such files come from shells, compressing downloads and wrong addresses. Null for
 * everything else.
 */
export function nameFormat(bytes: Uint8Array): string | null {
  const [first, second, third] = bytes
  if (first === 0xef && second === 0xbb && third === 0xbf) return BYTE_ORDER_MARK
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) return 'UTF-16'
  if (first === 0x1f && second === 0x8b) return 'gzip'
  const start = bytes.find((byte) => !WHITE_SPACE.has(byte))
  if (start === undefined) return 'nothing'
  return start === 0x3c ? 'HTML or XML' : null
}

export const BYTE_ORDER_MARK = 'a byte order mark first'

const WHITE_SPACE: ReadonlySet<number> = new Set([0x09, 0x0a, 0x0d, 0x20])
