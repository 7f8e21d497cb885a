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

/** Counter over a vocabulary that is loaded when it is first needed, and once. */
export function createTokenCounter(load: () => Promise<Vocabulary>): TokenCounter {
  let loading: Promise<Vocabulary> | null = null
  return {
    async count(text, { max, signal }) {
      loading ??= load()
      const vocabulary = await loading
      // So long a text has more tokens than that, whatever it says.
      if (text.length > max * vocabulary.tokenBytesMax) return null
      let count = 0
      let work = 0
      for (const [piece] of text.matchAll(vocabulary.pattern)) {
        const steps = countPiece(bytesOf(piece), vocabulary)
        let step = steps.next()
        for (; !step.done; step = steps.next()) await pause(signal)
        count += step.value
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
