import { encodeRlp, keccak256 } from 'ethers'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { buildTrieProof, verifyTrieProof } from '#attestation/evidence/trie.ts'
import { proveByReference } from './reference-trie.ts'
import { BLOCKS } from './vectors.ts'

it.each(BLOCKS)(
  'buildTrieProof finds the roots that a chain gave a block of $transactions.length transactions',
  (block) => {
    const [transactions, receipts] = [
      block.transactions.map(decodeHex),
      block.receipts.map(decodeHex),
    ]
    expect(hexOf(buildTrieProof(transactions, 0).root)).toBe(block.transactionsRoot)
    expect(hexOf(buildTrieProof(receipts, 0).root)).toBe(block.receiptsRoot)
  },
)

it('buildTrieProof agrees with a trie that is built by inserting, at sizes where keys change and at others', () => {
  const entries = Array.from({ length: 300 }, (_, at) => `0x${at.toString(16).padStart(64, '0')}`)
  const sizes = [1, 2, 3, 16, 17, 127, 128, 129, 130, 143, 144, 255, 256, 257, 258, 272, 300]
  for (const size of sizes) {
    const some = entries.slice(0, size)
    for (const index of new Set([0, 1, 15, 127, 128, size - 1].filter((at) => at < size)))
      expect(asHex(buildTrieProof(some.map(decodeHex), index))).toEqual(
        proveByReference(some, index),
      )
  }
})

it('buildTrieProof puts nodes below 32 bytes into the node above, as chains do whose own entries are short', () => {
  // Both entries: the trie of yellow paper, appendix D, by hand.
  const [short, long] = [Uint8Array.of(0x6a, 0xc2, 0x81, 0x80), new Uint8Array(40).fill(7)]
  const leaf = (path: number[], value: Uint8Array) => [Uint8Array.from(path), value]
  const inner = leaf([0x30 + (0x80 & 15)], short)
  const branch = Array.from({ length: 17 }, (_, nibble): string | (string | Uint8Array)[] => {
    // Keys: RLP(0) = 0x80, RLP(1) = 0x01.
    if (nibble === 8) return inner
    if (nibble === 0) return keccak256(encodeRlp(leaf([0x31], long)))
    return '0x'
  })
  const { root, nodes } = buildTrieProof([short, long], 1)
  expect(hexOf(root)).toBe(keccak256(encodeRlp(branch)))
  expect(verifyTrieProof({ root, index: 1, nodes })).toEqual(long)
})

it('buildTrieProof refuses an index without an entry and a proof of what is no transaction', () => {
  const entry = new Uint8Array(32)
  for (const [entries, index] of [
    [[], 0],
    [[entry], 1],
    [[entry], -1],
    [[entry], 0.5],
    [[new Uint8Array(31), entry], 0],
  ] as const)
    expect(() => buildTrieProof(entries, index)).toThrow(/at least 32 bytes/)
})

function asHex({ root, nodes }: ReturnType<typeof buildTrieProof>) {
  return { root: hexOf(root), nodes: nodes.map(hexOf) }
}

function hexOf(bytes: Uint8Array): string {
  return `0x${encodeHex(bytes)}`
}
