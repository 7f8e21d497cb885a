import { decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { ProofError } from '#attestation/errors.ts'
import { verifyConsistency, verifyInclusion } from '#attestation/merkle/verify.ts'
import { type LogDomain, type TreeHead, verifyTreeHead } from '#attestation/tree-head.ts'

/** A head with its notary's signature, as in lists of heads and in the browser's storage. */
export type ListedHead = {
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /** 0x and 65 bytes of hex. */
  readonly signature: string
}

/** The head is signed for this chain and contract. */
type HeadOwner = { readonly notary: string; readonly domain: LogDomain }

/**
 * Checks that the notary signed the head. Throws ProofError `wrong_signer`, FormatError. Does NOT
 * prove that the head is anchored, or the newest.
 */
export function openHead({ notary, domain }: HeadOwner, signed: ListedHead): TreeHead {
  const head = { size: signed.size, root: decodeHex(signed.root) }
  return verifyTreeHead({ domain, head, signature: decodeHex(signed.signature), notary })
}

/**
 * Checks that the log of `second` is the log of `first` with new leaves at the end, and that the
 * notary signed both heads. Returns the number of new leaves. Throws ProofError `wrong_signer` and
 * `inconsistent`, FormatError.
 */
export function checkGrowth(
  owner: HeadOwner,
  {
    first,
    second,
    path,
  }: {
    readonly first: ListedHead
    readonly second: ListedHead
    readonly path: readonly Uint8Array[]
  },
): { readonly added: number } {
  return verifyConsistency({ first: openHead(owner, first), second: openHead(owner, second), path })
}

/**
 * Checks that a leaf is at its index in the log, under a head that the notary signed. `expected`
 * (32 bytes): the hash that the reader expects for this leaf. Throws ProofError `wrong_signer`,
 * `not_included` and `other_leaf`, FormatError.
 */
export function checkLeaf(
  owner: HeadOwner,
  proof: {
    readonly head: ListedHead
    readonly index: number
    readonly leafHash: Uint8Array
    readonly path: readonly Uint8Array[]
    readonly expected: Uint8Array | null
  },
): void {
  const { index, leafHash, path, expected } = proof
  verifyInclusion({ leafHash, index, head: openHead(owner, proof.head), path })
  if (expected !== null && !equalBytes(expected, leafHash))
    throw new ProofError(
      'other_leaf',
      `leaf ${index} is ${encodeHex(leafHash)}, not the hash that you expect`,
    )
}
