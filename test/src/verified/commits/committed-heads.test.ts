import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { appendLeaves, type Edge, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { verifyInclusion } from '#attestation/merkle/verify.ts'
import type { Notary } from '#src/verified/commits/check-batch.ts'
import { createCommitTurns } from '#src/verified/commits/commit-turns.ts'
import {
  type CommittedHead,
  decodeHead,
  encodeHead,
  recordsUnder,
} from '#src/verified/commits/committed-heads.ts'
import { BATCH_COMPLETIONS_MAX } from '#src/verified/commits/follow-state.ts'
import type { HeadlessRecord } from '#src/verified/records/records-store.ts'

const NOTARY: Notary = {
  address: `0x${'12'.repeat(20)}`,
  publicKey: `0x04${'34'.repeat(64)}`,
  domain: { chainId: 1, contract: `0x${'56'.repeat(20)}` },
}

const leaf = () => new Uint8Array(randomBytes(32))

function commit(before: Edge, count: number): CommittedHead {
  const { edge, nodes } = appendLeaves(before, Array.from({ length: count }, leaf))
  const head = { size: edge.size, root: rootOf(edge), signature: new Uint8Array(randomBytes(65)) }
  return { before, nodes, head, txHash: `0x${encodeHex(leaf())}` }
}

it('a committed head is read as it was told, with the proofs of its leaves', () => {
  fc.assert(
    fc.property(fc.nat(300), fc.integer({ min: 1, max: 128 }), (size, count) => {
      const { edge } = appendLeaves(emptyEdge, Array.from({ length: size }, leaf))
      const head = commit(edge, count)
      const read = decodeHead(head.head.size, encodeHead(head))
      expect(read).toEqual(head)
      const recordUnder = recordsUnder(read, NOTARY)
      const leaves = head.nodes.filter(({ level }) => level === 0)
      for (const { index, hash: leafHash } of leaves) {
        const { logProof } = recordUnder({ index } as HeadlessRecord)
        const path = logProof.path.map((text) => new Uint8Array(Buffer.from(text, 'hex')))
        verifyInclusion({ leafHash, index, head: head.head, path })
      }
      expect(() => recordUnder({ index: size - 1 } as HeadlessRecord)).toThrow(RangeError)
      expect(() => recordUnder({ index: size + count } as HeadlessRecord)).toThrow(RangeError)
    }),
    { numRuns: 50 },
  )
})

it('a committed head is refused when edge, leaves, root and size do not belong together', () => {
  const { edge } = appendLeaves(emptyEdge, [leaf(), leaf(), leaf()])
  const head = commit(edge, 2)
  const reported = encodeHead(head)
  const other = encodeHead(commit(edge, 2))
  for (const wrong of [
    { ...reported, leaves: other.leaves },
    { ...reported, root: other.root },
    { ...reported, edge: '' },
    { ...reported, edge: reported.leaves },
    { ...reported, leaves: reported.leaves.slice(0, 44) },
    { ...reported, leaves: 'not base64' },
  ])
    expect(() => decodeHead(5, wrong)).toThrow()
  expect(() => decodeHead(6, reported)).toThrow()
  expect(() => decodeHead(1, reported)).toThrow()
})

it('a committed head fits into a notice of Postgres, whatever the size of its log', () => {
  const size = 2 ** 40 - 1
  const before = { size, hashes: Array.from({ length: 40 }, leaf) }
  const head = commit(before, BATCH_COMPLETIONS_MAX)
  const turns = createCommitTurns({
    session: { subscribe: () => () => {} } as never,
    gateway: crypto.randomUUID(),
    onNonce: () => {},
  })
  const notice = turns.encodeNotice({
    notary: NOTARY.address,
    size: head.head.size,
    head,
    relayer: NOTARY.address,
    nextNonce: 2 ** 40,
  })
  expect(Buffer.byteLength(notice ?? '')).toBeLessThan(8_000)
})
