import { encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { appendLeaves, type Edge, rootOf } from '#attestation/merkle/edge.ts'
import { verifyConsistency, verifyInclusion } from '#attestation/merkle/verify.ts'
import type { TreeHead } from '#attestation/tree-head.ts'
import type { LogContext } from './audit-context.ts'
import type { FindingCode } from './findings.ts'
import { GatewayFault } from './gateway-http.ts'

/** Maximum number of leaves that are kept in memory to find a wrong leaf. */
const HELD_LEAVES_MAX = 1_000

/** Builds the tree from leaves alone. This proves more than the gateway's consistency proofs. */
export class TreeWalk {
  private edge: Edge
  /**
   * The tree's edge at the last matching head. `held` contains the leaves since that head, or null
   * if there are too many.
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

  matches(root: Uint8Array): boolean {
    return equalBytes(this.root(), root)
  }

  /** Records that a head matched the current tree. */
  settle(): void {
    this.matched = this.edge
    this.held = []
  }

  /**
   * Finds the wrong leaves with the gateway's proofs, after a head did not match the tree. Returns
   * true if the tree is repaired and the walk can continue.
   */
  async explain(
    head: TreeHead,
    /** A signed head that is larger than `head`, or null. */
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

/** Returns null unless the gateway proves that a signed head contains the leaf. */
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
 * Checks that the gateway proves random leaves and heads to be in the newest matching head. The
 * audit does not need these proofs, but other clients do. Throws GatewayFault.
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
      // A verifier without a signed head uses the gateway's root, so this root must be right too.
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
 * Returns why there is no valid proof, or null if the proof is valid. Throws the fault if the
 * gateway did not answer.
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
