import { z } from 'zod'
import { concatBytes, encodeHex, equalBytes, HASH_BYTES } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { appendLeaves, type Edge, type LogNode, rootOf } from '#attestation/merkle/edge.ts'
import {
  buildProof,
  edgeNodes,
  inclusionNodes,
  type NodeCoordinate,
} from '#attestation/merkle/proof-nodes.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import type { AnchorProof } from '#enclave/protocol/enclave-api.ts'
import type { HeadlessRecord, StoredRecord } from '../records/records-store.ts'
import type { Notary } from './check-batch.ts'

/**
 * The proofs of new leaves need `before` (the edge before these leaves) and `nodes` (the subtrees
 * that these leaves completed).
 */
export type CommittedHead = {
  readonly before: Edge
  readonly nodes: readonly LogNode[]
  readonly head: SignedHead
  /** The anchor's transaction hash, 0x hex. */
  readonly txHash: string
}

/** The members of a record that come from its head and its notary. */
type HeadMembers = Omit<StoredRecord, keyof HeadlessRecord>

/** Completes the records of leaves that the head added. Throws RangeError for any other leaf. */
export function recordsUnder(
  { before, nodes, head, txHash }: CommittedHead,
  { address, publicKey, domain }: Notary,
): <Headless extends { readonly index: number }>(record: Headless) => Headless & HeadMembers {
  const hashAt = nodeLookup(before, nodes)
  const signed = {
    size: head.size,
    root: encodeHex(head.root),
    signature: `0x${encodeHex(head.signature)}`,
  }
  return (record) => {
    const { index } = record
    if (index < before.size || index >= head.size)
      throw new RangeError(`expected a leaf of this commit, got ${index}`)
    const path = buildProof(inclusionNodes(index, head.size), hashAt)
    return {
      ...record,
      notary: address,
      publicKey,
      txHash,
      reanchored: [],
      logProof: { ...signed, path: path.map(encodeHex), ...domain },
    }
  }
}

/** Returns the proof that the enclave adds to the answer of an encrypted call. */
export function proofOf(
  call: string,
  { txHash, logProof }: Pick<StoredRecord, 'txHash' | 'logProof'>,
): AnchorProof {
  const { chainId, ...proof } = logProof
  return { call, tx_hash: txHash, log: { ...proof, chain_id: chainId } }
}

/** Returns the hash of a leaf. Null unless this head added the leaf. */
export function leafOf({ nodes }: CommittedHead, index: number): Uint8Array | null {
  return nodes.find((node) => node.level === 0 && node.index === index)?.hash ?? null
}

/** Returns a lookup of the nodes on the inclusion path of each new leaf. */
function nodeLookup(
  before: Edge,
  nodes: readonly LogNode[],
): (coordinate: NodeCoordinate) => Uint8Array {
  const hashes = new Map(nodes.map((node) => [keyOf(node), node.hash]))
  for (const [place, coordinate] of edgeNodes(before.size).entries()) {
    const hash = before.hashes[place]
    if (hash !== undefined) hashes.set(keyOf(coordinate), hash)
  }
  return (coordinate) => {
    const hash = hashes.get(keyOf(coordinate))
    if (hash === undefined)
      throw new Error(`expected node ${keyOf(coordinate)} (level/index) of a new leaf's path`)
    return hash
  }
}

function keyOf({ level, index }: NodeCoordinate): string {
  return `${level}/${index}`
}

/**
 * A head as a gateway publishes it, in base64. `edge` and `leaves` are concatenated hashes. So a
 * Postgres notification (8,000 bytes) has room for the 128 leaves of a commit.
 */
export const encodedHead = z.object({
  edge: z.string(),
  leaves: z.string(),
  root: z.string(),
  signature: z.string(),
  tx_hash: z.string(),
})
export type EncodedHead = z.output<typeof encodedHead>

export function encodeHead({ before, nodes, head, txHash }: CommittedHead): EncodedHead {
  const leaves = nodes.filter(({ level }) => level === 0)
  return {
    edge: toBase64(concatBytes(...before.hashes)),
    leaves: toBase64(concatBytes(...leaves.map(({ hash }) => hash))),
    root: toBase64(head.root),
    signature: toBase64(head.signature),
    tx_hash: txHash,
  }
}

/** Throws FormatError when the text from the other gateway is not a valid head. */
export function decodeHead(size: number, encoded: EncodedHead): CommittedHead {
  const leaves = split(fromBase64(encoded.leaves))
  const before = { size: size - leaves.length, hashes: split(fromBase64(encoded.edge)) }
  const { edge, nodes } = appendLeaves(before, leaves)
  const root = rootOf(edge)
  if (!equalBytes(root, fromBase64(encoded.root)))
    throw new FormatError('invalid_edge', 'expected edge and leaves to add up to the root')
  const head = { size, root, signature: fromBase64(encoded.signature) }
  return { before, nodes, head, txHash: encoded.tx_hash }
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64')
}

/** The base64 is not checked: hashes from wrong bytes do not match the root. */
function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, 'base64'))
}

function split(bytes: Uint8Array): readonly Uint8Array[] {
  return Array.from({ length: Math.ceil(bytes.length / HASH_BYTES) }, (_, place) =>
    bytes.subarray(place * HASH_BYTES, (place + 1) * HASH_BYTES),
  )
}
