import { encodeHex, equalBytes } from '../attestation/bytes.ts'
import { FormatError, ProofError } from '../attestation/errors.ts'
import { appendLeaves, type Edge, rootOf } from '../attestation/merkle/edge.ts'
import { verifyConsistency, verifyInclusion } from '../attestation/merkle/verify.ts'
import type { TreeHead } from '../attestation/tree-head.ts'
import type { LogContext } from './audit-context.ts'
import type { FindingCode } from './findings.ts'
import { GatewayFault } from './gateway-http.ts'

/** Leaves under one head that are held, so that a wrong one among them can be found. */
const HELD_LEAVES_MAX = 1_000

/**
 * The tree, built from the leaves as they come, and compared with every head: stronger than
 * consistency proofs, for it takes nothing from the gateway but the leaves.
 */
export class TreeWalk {
  private edge: Edge
  /**
   * Where the last head that matched left it, and the leaves since; null when those are too many.
   */
  private matched: Edge
  private held: Uint8Array[] | null = []

  constructor(edge: Edge) {
    this.edge = edge
    this.matched = edge
  }

  get size(): number {
    return this.edge.size
  }

  /** The edge at the last head that matched. */
  get matchedEdge(): Edge {
    return this.matched
  }

  append(leaves: readonly Uint8Array[]): void {
    this.edge = appendLeaves(this.edge, leaves).edge
    if (this.held !== null && this.held.length + leaves.length <= HELD_LEAVES_MAX)
      this.held.push(...leaves)
    else this.held = null
  }

  root(): Uint8Array {
    return rootOf(this.edge)
  }

  /** Whether the tree at its size now has this root. */
  matches(root: Uint8Array): boolean {
    return equalBytes(this.root(), root)
  }

  /** Takes the tree as it is for the notary's: a head matched it. */
  settle(): void {
    this.matched = this.edge
    this.held = []
  }

  /**
   * Finds out which leaves are to blame for a head that the tree does not match, by the gateway's
   * own proofs that lead to that signed head. Whether the tree could be mended, and the walk can go
   * on.
   */
  async explain(
    head: TreeHead,
    /** A signed head beyond, when there is one. */
    beyond: TreeHead | null,
    context: LogContext,
  ): Promise<boolean> {
    const { ledger } = context
    const start = this.matched.size
    const where = `leaves ${start} to ${head.size - 1}`
    const proven = await this.proveLeaves(head, context)
    const wrong = proven?.findIndex((leaf, at) => !this.holds(at, leaf)) ?? -1
    if (proven === null || wrong < 0) {
      const message = `the leaves do not hash to the root of the signed head of size ${head.size}`
      ledger.find('head_root_mismatch', { where, message })
      return false
    }
    const after =
      proven[wrong + 1] ?? (beyond && (await proveLeaf(start + wrong + 1, beyond, context)))
    if (after !== null && this.holds(wrong, after)) {
      const message = `leaf ${start + wrong}, which is in the signed head of size ${head.size}, is left out`
      ledger.find('leaf_missing', { where: `leaf ${start + wrong}`, message })
      return false
    }
    for (const [at, leaf] of proven.entries())
      if (!this.holds(at, leaf))
        ledger.find('leaf_changed', {
          where: `leaf ${start + at}`,
          message: `leaf ${start + at} is not the one in the signed head of size ${head.size}`,
        })
    this.edge = appendLeaves(this.matched, proven).edge
    return this.matches(head.root)
  }

  private holds(at: number, leaf: Uint8Array): boolean {
    const held = this.held?.[at]
    return held !== undefined && equalBytes(held, leaf)
  }

  private async proveLeaves(
    head: TreeHead,
    context: LogContext,
  ): Promise<readonly Uint8Array[] | null> {
    if (this.held === null) return null
    const proven: Uint8Array[] = []
    for (let index = this.matched.size; index < head.size; index++) {
      const leaf = await proveLeaf(index, head, context)
      if (leaf === null) return null
      proven.push(leaf)
    }
    return proven
  }
}

/** The hash of a leaf as the gateway proves it to be in a signed head; null when it does not. */
async function proveLeaf(
  index: number,
  head: TreeHead,
  { log: { notary }, gateway }: LogContext,
): Promise<Uint8Array | null> {
  try {
    if (index >= head.size) return null
    const { leafHash, path } = await gateway.fetchInclusion(notary, { index, size: head.size })
    verifyInclusion({ leafHash, index, head, path })
    return leafHash
  } catch (fault) {
    const isNoProof =
      fault instanceof FormatError || fault instanceof ProofError || fault instanceof GatewayFault
    if (isNoProof) return null
    throw fault
  }
}

/**
 * Asks the gateway to prove a few leaves and heads, drawn at random, to be in the newest head that
 * the tree matched. The tree shows that already: this shows that the gateway gives others proofs
 * that hold. Throws GatewayFault.
 */
export async function auditProofs(
  newest: TreeHead,
  { log: { notary }, gateway, ledger, samples }: LogContext,
): Promise<void> {
  const expectProof = async (code: FindingCode, where: string, verify: () => Promise<unknown>) => {
    const reason = await reasonAgainst(verify)
    if (reason === null) ledger.pass('proofs')
    else ledger.find(code, { where, message: reason })
  }
  for (const [index, leafHash] of samples.leaves()) {
    if (index >= newest.size) continue
    await expectProof('inclusion_proof_invalid', `leaf ${index} in ${newest.size}`, async () => {
      const { root, path } = await gateway.fetchInclusion(notary, { index, size: newest.size })
      verifyInclusion({ leafHash, index, head: newest, path })
      // A verifier without the head compares with this root.
      if (!equalBytes(root, newest.root))
        throw new ProofError('wrong_head', `the proof holds, but names the root ${encodeHex(root)}`)
    })
  }
  for (const head of samples.heads()) {
    if (head.size > newest.size) continue
    await expectProof(
      'consistency_proof_invalid',
      `head ${head.size} in ${newest.size}`,
      async () => {
        const path = await gateway.fetchConsistency(notary, head.size, newest.size)
        verifyConsistency({ first: head, second: newest, path })
      },
    )
  }
}

/**
 * Why there is no proof that holds; null when there is. Throws what keeps the gateway from
 * answering at all.
 */
export async function reasonAgainst(verify: () => Promise<unknown>): Promise<string | null> {
  try {
    await verify()
    return null
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return fault.message
    const isNoProof =
      fault instanceof GatewayFault &&
      (fault.code === 'answer_refused' || fault.code === 'answer_invalid')
    if (isNoProof) return fault.message
    throw fault
  }
}
