import { encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { FormatError, ProofError } from '../../../attestation/errors.ts'
import { verifyConsistency, verifyInclusion } from '../../../attestation/merkle/verify.ts'
import type { TreeHead } from '../../../attestation/tree-head.ts'
import type { FindingCode } from './findings.ts'
import type { Gateway } from './gateway.ts'
import { GatewayFault } from './gateway-fault.ts'
import type { Ledger } from './ledger.ts'
import type { Samples } from './samples.ts'

/**
 * Asks the gateway to prove a few leaves and heads, drawn at random, to be in the newest head that the tree matched. The
 * tree shows that already: this shows that the gateway gives others proofs that hold. Throws GatewayFault.
 */
export async function auditProofs(
  newest: TreeHead,
  given: {
    readonly notary: string
    readonly gateway: Pick<Gateway, 'fetchInclusion' | 'fetchConsistency'>
    readonly ledger: Ledger
    readonly samples: Samples
  },
): Promise<void> {
  const { notary, gateway, ledger, samples } = given
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
      // Whoever does not have the head compares with this one.
      if (!equalBytes(root, newest.root))
        throw new ProofError('wrong_head', `the proof holds, but names the root ${encodeHex(root)}`)
    })
  }
  for (const head of samples.heads()) {
    if (head.size > newest.size) continue
    await expectProof('consistency_proof_invalid', `head ${head.size} in ${newest.size}`, async () => {
      const path = await gateway.fetchConsistency(notary, head.size, newest.size)
      verifyConsistency({ first: head, second: newest, path })
    })
  }
}

/** Why there is no proof that holds; null when there is. Throws what keeps the gateway from answering at all. */
export async function reasonAgainst(verify: () => Promise<unknown>): Promise<string | null> {
  try {
    await verify()
    return null
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return fault.message
    const isNoProof =
      fault instanceof GatewayFault && (fault.code === 'answer_refused' || fault.code === 'answer_invalid')
    if (isNoProof) return fault.message
    throw fault
  }
}
