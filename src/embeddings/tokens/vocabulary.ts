/** A byte-pair encoding. Texts are UTF-8 bytes, each as the character of its value (latin1), because maps have no byte keys. */
export type Vocabulary = {
  /** Rank by the token's bytes; of two neighbours that may be merged, the pair with the lowest goes first. */
  readonly ranks: ReadonlyMap<string, number>
  /** Splits a text (not its bytes) into pieces, which no token crosses. Global. */
  readonly pattern: RegExp
  /** Bytes of the longest token. */
  readonly tokenBytesMax: number
}

/** Loads cl100k_base, which takes about 0.2 s and 20 MB. Special tokens are left out: what callers write is text. */
export async function loadCl100k(): Promise<Vocabulary> {
  const [{ default: table }, { Cl100KBase }] = await Promise.all([
    import('gpt-tokenizer/bpeRanks/cl100k_base'),
    import('gpt-tokenizer/encodingParams/cl100k_base'),
  ])
  const ranks = new Map<string, number>()
  let tokenBytesMax = 0
  table.forEach((token, rank) => {
    const bytes = typeof token === 'string' ? bytesOf(token) : String.fromCharCode(...token)
    ranks.set(bytes, rank)
    tokenBytesMax = Math.max(tokenBytesMax, bytes.length)
  })
  return { ranks, pattern: Cl100KBase(table).tokenSplitRegex, tokenBytesMax }
}

/** UTF-8 of a text, each byte as one character. A lone surrogate becomes U+FFFD. */
export function bytesOf(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1')
}
