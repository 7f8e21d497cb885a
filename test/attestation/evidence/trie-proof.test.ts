import { keccak_256 } from '@noble/hashes/sha3.js'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { encodeRlp, type RlpItem } from '#attestation/evidence/rlp.ts'
import { TRIE_NODES_MAX, verifyTrieProof } from '#attestation/evidence/trie.ts'
import { proveByReference } from './reference-trie.ts'
import { BLOCKS } from './vectors.ts'

it.each(BLOCKS)(
  'verifyTrieProof gives every transaction and receipt of a mined block: $number',
  (block) => {
    for (const [root, entries] of [
      [block.transactionsRoot, block.transactions],
      [block.receiptsRoot, block.receipts],
    ] as const)
      for (let index = 0; index < entries.length; index += entries.length > 50 ? 13 : 1) {
        const nodes = proveByReference(entries, index).nodes.map(decodeHex)
        const entry = verifyTrieProof({ root: decodeHex(root), index, nodes })
        expect(`0x${encodeHex(entry)}`).toBe(entries[index])
      }
  },
)

it('verifyTrieProof refuses the proof of any other index of the block', () => {
  for (const block of BLOCKS.slice(0, 4)) {
    const root = decodeHex(block.transactionsRoot)
    const count = block.transactions.length
    for (const index of [0, 1, 16, 128].filter((at) => at < count)) {
      const nodes = proveByReference(block.transactions, index).nodes.map(decodeHex)
      for (let other = 0; other < count + 3; other++)
        if (other !== index) expect(() => verifyTrieProof({ root, index: other, nodes })).toThrow()
    }
  }
})

it('a proof with a changed byte or a node left out, repeated or moved is refused', () => {
  const { root, nodes } = proofOf(130, 77)
  expect(verifyTrieProof({ root, index: 77, nodes })).toHaveLength(40)
  for (let at = 0; at < nodes.length; at++) {
    const without = nodes.toSpliced(at, 1)
    expect(() => verifyTrieProof({ root, index: 77, nodes: without })).toThrow()
    expect(() =>
      verifyTrieProof({ root, index: 77, nodes: nodes.toSpliced(at, 0, nodes[at] ?? root) }),
    ).toThrow()
    expect(() => verifyTrieProof({ root, index: 77, nodes: [...nodes].reverse() })).toThrow()
  }
  fc.assert(
    fc.property(fc.nat(), fc.nat(), fc.integer({ min: 1, max: 255 }), (node, at, flip) => {
      const victim = nodes[node % nodes.length] ?? root
      const changed = victim.with(at % victim.length, (victim[at % victim.length] ?? 0) ^ flip)
      const all = nodes.with(node % nodes.length, changed)
      expect(() => verifyTrieProof({ root, index: 77, nodes: all })).toThrow()
    }),
    { numRuns: 300 },
  )
})

it('a proof that goes on after the leaf and a proof that ends before it are refused', () => {
  const { root, nodes } = proofOf(20, 3)
  expect(() => verifyTrieProof({ root, index: 3, nodes: [...nodes, nodes[0] ?? root] })).toThrow(
    /after the leaf/,
  )
  expect(() => verifyTrieProof({ root, index: 3, nodes: nodes.slice(0, -1) })).toThrow(
    /end with a leaf/,
  )
  expect(() => verifyTrieProof({ root, index: 3, nodes: [] })).toThrow(/end with a leaf/)
})

it('an index that the block does not have is refused', () => {
  const { root, nodes } = proofOf(20, 3)
  expect(() => verifyTrieProof({ root, index: 25, nodes })).toThrow(
    /end with a leaf|lead to the entry|hash/,
  )
  const [top = new Uint8Array()] = nodes
  expect(() => verifyTrieProof({ root, index: 0x20, nodes: [top] })).toThrow(/lead to the entry/)
})

it.each<[string, number, readonly RlpItem[], RegExp]>([
  ['a node that is no list', 1, [bytes('aa'.repeat(40))], /to be a list/],
  ['a node of 3 items', 1, [[bytes('31'), VALUE(), VALUE()]], /2 or 17 items/],
  ['a value at a branch', 1, [branch({ 0: HASH() }, VALUE())], /no value at a branch/],
  ['a list as value of a branch', 1, [branch({ 0: HASH() }, [])], /byte string/],
  ['a node inside a branch', 1, [branch({ 0: [bytes('31'), bytes('aa')] })], /byte string/],
  ['a child of 31 bytes', 1, [branch({ 0: bytes('aa'.repeat(31)) })], /32 bytes/],
  ['a path without a flag', 1, [[bytes(''), VALUE()]], /hex-prefix/],
  ['a flag beyond 3', 1, [[bytes('4001'), VALUE()]], /hex-prefix/],
  ['a padding that is not zero', 1, [[bytes('2101'), VALUE()]], /padding/],
  ['an extension that does not extend', 1, [[bytes('00'), HASH()]], /to extend/],
  ['a leaf of another key', 1, [[bytes('2002'), VALUE()]], /lead to the entry/],
  ['a leaf with the beginning of the key', 1, [[bytes('30'), VALUE()]], /lead to the entry/],
  ['a leaf with more than the key', 1, [[bytes('200100'), VALUE()]], /lead to the entry/],
  ['an extension of another key', 1, [[bytes('12'), HASH()]], /lead to the entry/],
  ['an extension longer than the key', 1, [[bytes('1010'), HASH()]], /lead to the entry/],
  ['a list as the value of a leaf', 1, [[bytes('2001'), []]], /byte string/],
  ['a list as path', 1, [[[], VALUE()]], /byte string/],
])('verifyTrieProof refuses a wrong node: %s', (_, index, [node = []], message) => {
  const encoded = encodeRlp(node)
  expect(() => verifyTrieProof({ root: keccak_256(encoded), index, nodes: [encoded] })).toThrow(
    message,
  )
})

it('verifyTrieProof refuses a key that ends at a branch', () => {
  const below = encodeRlp(branch({ 3: HASH() }))
  const top = encodeRlp([bytes('0001'), keccak_256(below)])
  expect(() => verifyTrieProof({ root: keccak_256(top), index: 1, nodes: [top, below] })).toThrow(
    /no key to end at a branch/,
  )
})

it('verifyTrieProof takes a lone leaf, and nodes inside nodes beside the way', () => {
  const lone = encodeRlp([bytes('2080'), VALUE()])
  expect(verifyTrieProof({ root: keccak_256(lone), index: 0, nodes: [lone] })).toEqual(VALUE())
  const leaf = encodeRlp([bytes('31'), VALUE()])
  const top = encodeRlp(branch({ 0: keccak_256(leaf), 5: [bytes('31'), bytes('aa')] }))
  expect(verifyTrieProof({ root: keccak_256(top), index: 1, nodes: [top, leaf] })).toEqual(VALUE())
})

it('impossible indexes and counts of nodes are refused', () => {
  const { root, nodes } = proofOf(2, 0)
  for (const index of [-1, 0.5, 2 ** 53, Number.NaN])
    expect(() => verifyTrieProof({ root, index, nodes })).toThrow(/index of 0 to/)
  const many = Array.from({ length: TRIE_NODES_MAX + 1 }, () => root)
  expect(() => verifyTrieProof({ root, index: 0, nodes: many })).toThrow(/at most 17 nodes/)
})

it('nodes with bytes after them or lengths in another form are refused, even under their own hash', () => {
  const leaf = encodeRlp([bytes('2001'), VALUE()])
  const trailing = Uint8Array.from([...leaf, 0])
  const longForm = Uint8Array.from([0xf8, leaf.length - 1, ...leaf.subarray(1)])
  for (const node of [trailing, longForm])
    expect(() => verifyTrieProof({ root: keccak_256(node), index: 1, nodes: [node] })).toThrow(
      /RLP/,
    )
  expect(
    equalBytes(verifyTrieProof({ root: keccak_256(leaf), index: 1, nodes: [leaf] }), VALUE()),
  ).toBe(true)
})

function proofOf(count: number, index: number) {
  const entries = Array.from({ length: count }, (_, at) => `0x${at.toString(16).padStart(80, '0')}`)
  const { root, nodes } = proveByReference(entries, index)
  return { root: decodeHex(root), nodes: nodes.map(decodeHex) }
}

function branch(children: Readonly<Record<number, RlpItem>>, value: RlpItem = bytes('')): RlpItem {
  return [...Array.from({ length: 16 }, (_, nibble) => children[nibble] ?? bytes('')), value]
}

function bytes(hex: string): Uint8Array {
  return decodeHex(hex)
}

function VALUE(): Uint8Array {
  return decodeHex('ee'.repeat(40))
}

function HASH(): Uint8Array {
  return decodeHex('cc'.repeat(32))
}
