import { setImmediate as nextTurn } from 'node:timers/promises'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { byteStringOf, countPiece, STEPS_PER_PAUSE, type Vocabulary } from './byte-pairs.ts'

/** Counts tokens for the models in this folder's README.md. */
export type TokenCounter = {
  /**
   * Null if the text has more than `max` tokens. Other calls can run during the counting. Throws
   * the reason of an aborted signal.
   */
  count(
    text: string,
    options: { readonly max: number; readonly signal: AbortSignal },
  ): Promise<number | null>
}

/**
 * Longer pieces are counted one after another. Counting needs 28 times a piece's memory. On one
 * thread, counting two pieces at once is not faster.
 */
export const LONG_PIECE_BYTES = 16 * 1024

/** Short pieces are cached, because words repeat. */
const REMEMBERED_LENGTH_MAX = 32
/** Takes less than 2 MB. A full cache is emptied. */
const REMEMBERED_MAX = 16_384

/** The vocabulary is loaded at the first use. */
export function createTokenCounter(load: () => Promise<Vocabulary>): TokenCounter {
  let loading: Promise<Vocabulary> | null = null
  const longPieces = createSerialQueue()
  const remembered = new Map<string, number>()

  async function countNew(
    piece: string,
    vocabulary: Vocabulary,
    signal: AbortSignal,
  ): Promise<number> {
    const bytes = byteStringOf(piece)
    const counting = () => countInTurns(bytes, vocabulary, signal)
    const count = await (bytes.length > LONG_PIECE_BYTES ? longPieces.run(counting) : counting())
    if (piece.length <= REMEMBERED_LENGTH_MAX) {
      if (remembered.size >= REMEMBERED_MAX) remembered.clear()
      remembered.set(piece, count)
    }
    return count
  }

  return {
    async count(text, { max, signal }) {
      loading ??= load()
      const vocabulary = await loading
      // A text of this length always has more than `max` tokens.
      if (Buffer.byteLength(text) > max * vocabulary.tokenBytesMax) return null
      let count = 0
      let work = 0
      for (const [piece] of text.matchAll(vocabulary.pattern)) {
        count += remembered.get(piece) ?? (await countNew(piece, vocabulary, signal))
        if (count > max) return null
        work += piece.length
        if (work < STEPS_PER_PAUSE) continue
        work = 0
        await pause(signal)
      }
      return count
    },
  }
}

async function countInTurns(
  bytes: string,
  vocabulary: Vocabulary,
  signal: AbortSignal,
): Promise<number> {
  signal.throwIfAborted()
  const steps = countPiece(bytes, vocabulary)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
    await pause(signal)
  }
}

async function pause(signal: AbortSignal): Promise<void> {
  await nextTurn()
  signal.throwIfAborted()
}
