/**
 * A byte-pair encoding of UTF-8 bytes. Each byte is a character (latin1), because map keys cannot
 * be bytes.
 */
export type Vocabulary = {
  /**
   * Rank of each token, by its bytes. The pair of neighbours with the lowest rank is merged first.
   */
  readonly ranks: ReadonlyMap<string, number>
  /** Splits a text, not its bytes, into pieces. No token spans two pieces. Has the global flag. */
  readonly pattern: RegExp
  /** Bytes of the longest token. */
  readonly tokenBytesMax: number
}

/**
 * Loads cl100k_base, which takes about 0.2 s and 20 MB. The vocabulary has no special tokens,
 * because callers' input is plain text.
 */
export async function loadCl100k(): Promise<Vocabulary> {
  const [{ default: table }, { Cl100KBase }] = await Promise.all([
    import('gpt-tokenizer/bpeRanks/cl100k_base'),
    import('gpt-tokenizer/encodingParams/cl100k_base'),
  ])
  const ranks = new Map<string, number>()
  let tokenBytesMax = 0
  table.forEach((token, rank) => {
    const bytes = typeof token === 'string' ? byteStringOf(token) : String.fromCharCode(...token)
    ranks.set(bytes, rank)
    tokenBytesMax = Math.max(tokenBytesMax, bytes.length)
  })
  return { ranks, pattern: Cl100KBase(table).tokenSplitRegex, tokenBytesMax }
}

/** UTF-8 bytes as characters. A lone surrogate becomes U+FFFD. */
export function byteStringOf(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1')
}

/** Steps between two pauses, about 2 ms. */
export const STEPS_PER_PAUSE = 8_192

/**
 * Counts the tokens in one piece (see `byteStringOf`). Merges neighbours until no pair is a token:
 * the lowest rank first, then the leftmost. A caller's piece may be megabytes long. So a heap
 * stores the pairs, and the generator pauses every STEPS_PER_PAUSE steps.
 */
export function* countPiece(piece: string, vocabulary: Vocabulary): Generator<undefined, number> {
  const length = piece.length
  if (length < 2 || (length <= vocabulary.tokenBytesMax && vocabulary.ranks.has(piece)))
    return Math.min(length, 1)
  const parts = createParts(length)
  // There is one pair for each byte except the last. A merge removes one pair and adds at most two.
  const pairs = createHeap(2 * length)
  const rankPair = (start: number) => {
    const end = parts.endOfPair(start)
    const rank = end === null ? undefined : rankOf(piece, { start, end, vocabulary })
    parts.setRank(start, rank ?? NO_RANK)
    if (rank !== undefined) pairs.push(rank * POSITIONS + start)
  }
  let steps = 0
  for (let start = 0; start < length - 1; start++) {
    rankPair(start)
    if (++steps % STEPS_PER_PAUSE === 0) yield
  }
  let count = length
  for (let pair = pairs.pop(); pair !== null; pair = pairs.pop()) {
    if (++steps % STEPS_PER_PAUSE === 0) yield
    const start = pair % POSITIONS
    // A changed rank means that this pair no longer exists: a part was merged before.
    if (parts.rank(start) !== Math.floor(pair / POSITIONS)) continue
    const before = parts.merge(start)
    count--
    rankPair(start)
    if (before >= 0) rankPair(before)
  }
  return count
}

/**
 * A pair is one number, exact up to 2^53: the rank in the high part, the position in the low part.
 * The pair with the lowest number is merged first.
 */
const POSITIONS = 2 ** 32
const NO_RANK = -1

function rankOf(
  piece: string,
  pair: { readonly start: number; readonly end: number; readonly vocabulary: Vocabulary },
): number | undefined {
  const { start, end, vocabulary } = pair
  return end - start > vocabulary.tokenBytesMax
    ? undefined
    : vocabulary.ranks.get(piece.slice(start, end))
}

/** The parts of a piece, as a linked list. A part is identified by its start. */
function createParts(length: number) {
  const next = new Int32Array(length)
  const previous = new Int32Array(length)
  // `Int32Array.from` with a function would take a hundred times as long.
  for (let start = 0; start < length; start++) {
    next[start] = start + 1
    previous[start] = start - 1
  }
  const ranks = new Int32Array(length).fill(NO_RANK)
  const at = (list: Int32Array, start: number) => list[start] ?? length
  return {
    rank: (start: number) => ranks[start] ?? NO_RANK,
    setRank: (start: number, rank: number) => {
      ranks[start] = rank
    },
    /** Null if the part at `start` is the last. */
    endOfPair: (start: number) => {
      const second = at(next, start)
      return second >= length ? null : at(next, second)
    },
    /**
     * Merges the part at `start` with the next part. Returns the start of the previous part, or a
     * negative number.
     */
    merge: (start: number) => {
      const second = at(next, start)
      const after = at(next, second)
      next[start] = after
      if (after < length) previous[after] = start
      ranks[second] = NO_RANK
      return previous[start] ?? -1
    },
  }
}

/** A binary heap, smallest first. */
function createHeap(capacity: number) {
  const items = new Float64Array(capacity)
  let size = 0
  const at = (index: number) => (index < size ? (items[index] ?? Infinity) : Infinity)
  return {
    push: (item: number) => {
      let index = size++
      while (index > 0) {
        const parent = (index - 1) >> 1
        if (at(parent) <= item) break
        items[index] = at(parent)
        index = parent
      }
      items[index] = item
    },
    pop: () => {
      if (size === 0) return null
      const top = at(0)
      const last = at(size - 1)
      size--
      let index = 0
      for (;;) {
        const left = 2 * index + 1
        const child = at(left + 1) < at(left) ? left + 1 : left
        if (at(child) >= last) break
        items[index] = at(child)
        index = child
      }
      if (size > 0) items[index] = last
      return top
    },
  }
}
