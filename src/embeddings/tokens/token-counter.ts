import { setImmediate as nextTurn } from 'node:timers/promises'
import { countPiece, STEPS_PER_PAUSE } from './count-piece.ts'
import { bytesOf, type Vocabulary } from './vocabulary.ts'

/** Counts tokens; see README.md of this folder for whose. */
export type TokenCounter = {
  /**
   * Tokens of a text, or null when there are more than `max`. Gives way to other calls in between, and throws the signal's
   * reason once it is aborted.
   */
  count(text: string, options: { readonly max: number; readonly signal: AbortSignal }): Promise<number | null>
}

/**
 * Bytes of a piece that waits until no other such piece is being counted. Counting takes 28 times a piece's own memory, and one thread counts no
 * faster for counting two.
 */
export const LONG_PIECE_BYTES = 16 * 1024

/** Counter over a vocabulary that is loaded when it is first needed, and once. */
export function createTokenCounter(load: () => Promise<Vocabulary>): TokenCounter {
  let loading: Promise<Vocabulary> | null = null
  const takeTurn = createTurns()
  return {
    async count(text, { max, signal }) {
      loading ??= load()
      const vocabulary = await loading
      // So long a text has more tokens than that, whatever it says.
      if (Buffer.byteLength(text) > max * vocabulary.tokenBytesMax) return null
      let count = 0
      let work = 0
      for (const [piece] of text.matchAll(vocabulary.pattern)) {
        const bytes = bytesOf(piece)
        const endTurn = bytes.length > LONG_PIECE_BYTES ? await takeTurn(signal) : null
        try {
          const steps = countPiece(bytes, vocabulary)
          let step = steps.next()
          for (; !step.done; step = steps.next()) await pause(signal)
          count += step.value
        } finally {
          endTurn?.()
        }
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

async function pause(signal: AbortSignal): Promise<void> {
  await nextTurn()
  signal.throwIfAborted()
}

/** Turns that are taken one after another, in the order they were asked for: each gives how to end it, or throws the signal's reason. */
function createTurns(): (signal: AbortSignal) => Promise<() => void> {
  let last: Promise<void> = Promise.resolve()
  return async (signal) => {
    const before = last
    const { promise: ended, resolve: end } = Promise.withResolvers<void>()
    last = before.then(() => ended)
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(signal.reason)
    signal.addEventListener('abort', leave, { once: true })
    try {
      signal.throwIfAborted()
      await Promise.race([before, left.promise])
      return end
    } catch (error) {
      end()
      throw error
    } finally {
      signal.removeEventListener('abort', leave)
    }
  }
}
