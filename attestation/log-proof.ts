import { addressOf, type PointRecovery } from './account.ts'
import { decodeHex, encodeUtf8 } from './bytes.ts'
import { canonicalizeJson } from './json/canonical.ts'
import type { LogProof } from './log-proof-form.ts'
import { hashLeaf } from './merkle/hash.ts'
import { verifyInclusion } from './merkle/verify.ts'
import type { Receipt } from './receipt.ts'
import { type TreeHead, verifyTreeHead } from './tree-head.ts'

/** The leaf hash of a receipt in its notary's log: over the UTF-8 bytes of its canonical JSON. */
export function hashReceipt(receipt: Receipt): Uint8Array {
  return hashLeaf(encodeUtf8(canonicalizeJson(receipt)))
}

/**
 * Verifies that `receipt` is leaf `receipt.index` of the log with the proof's head. Throws
 * FormatError `invalid_proof`, ProofError `not_included`.
 *
 * Does NOT prove that the notary signed the head: verifyLogHead does.
 */
export function verifyReceiptInLog(input: {
  readonly proof: LogProof
  readonly receipt: Receipt
}): {
  readonly index: number
  readonly size: number
} {
  const { proof, receipt } = input
  return verifyInclusion({
    leafHash: hashReceipt(receipt),
    index: receipt.index,
    head: headOf(proof),
    path: proof.path.map(decodeHex),
  })
}

/**
 * Verifies that the account of `publicKey` (65 bytes) signed the proof's head, for its chain and
 * contract. `recover` and errors: see verifyTreeHead. Does NOT prove that the head was anchored in
 * this contract, nor that the log has only one version.
 */
export function verifyLogHead(
  input: { readonly proof: LogProof; readonly publicKey: Uint8Array },
  recover?: PointRecovery,
): TreeHead {
  const { proof, publicKey } = input
  const signed = {
    domain: { chainId: proof.chain_id, contract: proof.contract },
    head: headOf(proof),
    signature: decodeHex(proof.signature),
    notary: addressOf(publicKey),
  }
  return verifyTreeHead(signed, recover)
}

/**
 * Verifies both: the receipt is in the log, and the notary signed the log's head. Returns the head,
 * and the index of the leaf.
 *
 * @example
 * const { receipt, log, public_key } = parseExactJson(recordFile)
 * const { index, head } = verifyLogProof({
 *   receipt: parseReceipt(receipt),
 *   proof: parseLogProof(log),
 *   publicKey: decodeHex(public_key),
 * })
 * console.log(index < head.size) // true
 */
export function verifyLogProof(input: {
  readonly proof: LogProof
  readonly receipt: Receipt
  readonly publicKey: Uint8Array
}): { readonly index: number; readonly head: TreeHead } {
  const { index } = verifyReceiptInLog(input)
  return { index, head: verifyLogHead(input) }
}

function headOf(proof: LogProof): TreeHead {
  return { size: proof.size, root: decodeHex(proof.root) }
}
