import { concatBytes } from '../bytes.ts'
import { EifError } from './eif-error.ts'

/** Takes a stream of chunks apart at byte positions of one's own. */
export type ByteReader = {
  /** Passes the next `length` bytes on as they come, in pieces that are not kept or copied. */
  forEach(length: number, visit: (piece: Uint8Array) => void): Promise<void>
  /** Gives the next `length` bytes whole, in memory of their own. */
  take(length: number): Promise<Uint8Array>
  /** Refuses what comes after. */
  expectEnd(): Promise<void>
}

/** Reads `chunks` once, from the start. A stream that ends early, or too late, is EifError `source_changed`. */
export function createByteReader(chunks: AsyncIterator<Uint8Array>): ByteReader {
  let rest: Uint8Array = new Uint8Array()
  const pull = async (): Promise<boolean> => {
    const next = await chunks.next()
    if (next.done === true) return false
    rest = next.value
    return true
  }
  const forEach: ByteReader['forEach'] = async (length, visit) => {
    let left = length
    while (left > 0) {
      if (rest.length === 0) {
        if (!(await pull())) throw new EifError('source_changed', `expected ${left} more bytes`)
        continue
      }
      const piece = rest.subarray(0, left)
      rest = rest.subarray(piece.length)
      left -= piece.length
      visit(piece)
    }
  }
  return {
    forEach,
    take: async (length) => {
      const pieces: Uint8Array[] = []
      await forEach(length, (piece) => pieces.push(piece.slice()))
      return concatBytes(...pieces)
    },
    expectEnd: async () => {
      while (rest.length === 0) if (!(await pull())) return
      throw new EifError('source_changed', 'expected no more bytes')
    },
  }
}
