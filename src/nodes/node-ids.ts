import { wordlists } from 'ethers'

/** Words of a node id: 5 × 11 bits. */
export const NODE_ID_WORDS = 5

/** A node id: words of the English BIP-39 list, joined by `_`. It names a node and is no secret. */
export const NODE_ID_FORM = /^[a-z]{3,8}(_[a-z]{3,8}){4}$/

/**
 * Gives a new node id, five words of the English list of BIP-39 that are drawn alike. `random` gives so many
 * unpredictable bytes. Two of a million nodes have the same id by chance in one of 72,000 cases: whoever stores it must try again.
 */
export function makeNodeId(random: (length: number) => Uint8Array): string {
  const bytes = random(2 * NODE_ID_WORDS)
  const draws = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Array.from({ length: NODE_ID_WORDS }, (_, index) =>
    english().getWord(draws.getUint16(2 * index) % WORDS),
  ).join('_')
}

/** A power of two, so that the rest of a division of 16 bits is even. */
const WORDS = 2048

function english() {
  const { en } = wordlists
  if (en === undefined) throw new TypeError('expected the English word list in ethers')
  return en
}
