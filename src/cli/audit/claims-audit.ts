import { encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { digestBootConfiguration } from '../../../attestation/evidence/boot-configuration.ts'
import type { TreeHead } from '../../../attestation/tree-head.ts'
import type { ServedLog } from './answers.ts'
import type { Ledger } from './ledger.ts'
import { isSigned } from './signed-heads.ts'

/**
 * Compares the size and root that the gateway claims for a log with what it shows: a signed head of more leaves
 * (`servedSize`: the largest that was served before the claim was made), and the root that `tree`, built from the leaves,
 * has at that size (null: there is no tree of them all). Nobody signed the claims, but whoever believes them sees a
 * shorter log, or another one, than there is.
 */
export function auditClaims(
  claimed: ServedLog,
  given: {
    readonly ledger: Ledger
    readonly where: string
    readonly servedSize: number
    readonly tree: TreeHead | null
  },
): void {
  const { ledger, where, servedSize, tree } = given
  const { size, root, head } = claimed
  const ownSize = head !== null && isSigned(head, claimed) ? head.size : 0
  const signedSize = Math.max(servedSize, ownSize)
  if (signedSize > size)
    ledger.find('size_understated', {
      where,
      message: `the log claims ${size} leaves, but a signed head of ${signedSize} is served`,
    })
  if (tree === null || tree.size !== size) return
  if (!equalBytes(tree.root, root))
    ledger.find('head_root_mismatch', {
      where,
      message: `the log claims the root ${encodeHex(root)} for its ${size} leaves, which hash to ${encodeHex(tree.root)}`,
    })
}

/** Compares what the gateway says of a log's key, place and configuration at the end with what it said first. */
export function auditSameLog(first: ServedLog, later: ServedLog, ledger: Ledger): void {
  const isSame =
    equalBytes(first.publicKey, later.publicKey) &&
    first.domain.chainId === later.domain.chainId &&
    first.domain.contract === later.domain.contract &&
    equalBytes(
      digestBootConfiguration(first.bootConfiguration),
      digestBootConfiguration(later.bootConfiguration),
    )
  if (isSame) return
  ledger.find('log_identity_invalid', {
    where: 'log, at the end',
    message: 'its key, chain, contract or boot configuration is not the one it had when the audit began',
  })
}
