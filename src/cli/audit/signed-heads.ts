import { encodeHex } from '../../../attestation/bytes.ts'
import { FormatError, ProofError } from '../../../attestation/errors.ts'
import { type LogDomain, type TreeHead, verifyTreeHead } from '../../../attestation/tree-head.ts'
import { recoverPoint } from '../../verified/check-batch.ts'
import type { HeadIndex } from './head-index.ts'
import type { Ledger } from './ledger.ts'

/** A head with its notary's signature (65 bytes). */
export type SignedHead = TreeHead & { readonly signature: Uint8Array }

/** Who signs the heads of a log, and for where. */
export type Signer = { readonly notary: string; readonly domain: LogDomain }

/** Whether the notary signed the head, for its chain and contract. */
export function isSigned(head: SignedHead, { notary, domain }: Signer): boolean {
  try {
    verifyTreeHead({ domain, head, signature: head.signature, notary }, recoverPoint)
    return true
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return false
    throw fault
  }
}

/** A head in words, with its signature: two of one size and different roots are a proof that anyone can check. */
export function describeHead({ size, root, signature }: SignedHead): string {
  return `size ${size}, root ${encodeHex(root)}, signature 0x${encodeHex(signature)}`
}

/** Judges the heads of a log as they are served, in order. */
export type HeadJudge = {
  /** The newest head that was accepted. */
  newest(): SignedHead | null
  /**
   * Whether a head is signed and follows those before. One that is not takes no further part: an unsigned head binds
   * nobody, and one that is no larger shows nothing that the larger one does not.
   */
  accept(head: SignedHead, where: string): boolean
}

/** Gives a judge that goes on from `newest`. Heads that it accepts go into the index. */
export function createHeadJudge(
  signer: Signer,
  given: { readonly ledger: Ledger; readonly index: HeadIndex; readonly newest: SignedHead | null },
): HeadJudge {
  const { ledger, index } = given
  let newest = given.newest

  return {
    newest: () => newest,
    accept(head, where) {
      if (!isSigned(head, signer)) {
        ledger.find('head_signature_invalid', {
          where,
          message: `expected the signature of ${signer.notary} on the head of ${describeHead(head)}`,
        })
        return false
      }
      ledger.pass('head signatures')
      if (newest === null ? head.size === 0 : head.size <= newest.size) {
        refuse(head, where)
        return false
      }
      ledger.pass('growth')
      newest = { size: head.size, root: head.root, signature: head.signature }
      index.add(newest)
      return true
    },
  }

  function refuse(head: SignedHead, where: string): void {
    const known = index.compare(head)
    if (known === 'other')
      reportEquivocation(ledger, where, [
        describeHead(head),
        `root ${rootAt(head.size)}, signed and served before`,
      ])
    else if (known === 'same')
      ledger.find('head_reused', {
        where,
        message: `the head of size ${head.size} was served before, and stands here in place of one over ${newest?.size}`,
      })
    else
      ledger.find('sizes_not_growing', {
        where,
        message: `expected a head of more than ${newest?.size ?? 0} leaves, got one of ${head.size}`,
      })
  }

  function rootAt(size: number): string {
    const root = index.rootAt(size)
    return root === null ? 'unknown' : encodeHex(root)
  }
}

/** Notes that a notary signed two histories. `heads` describes both. */
export function reportEquivocation(ledger: Ledger, where: string, heads: readonly string[]): void {
  ledger.find('equivocation', {
    where,
    message: `the notary stands by two histories: ${heads.join('; against: ')}`,
  })
}
