import { addressOf, type PointRecovery } from './account.ts'
import { decodeHex, encodeUtf8 } from './bytes.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isJsonArray, type Json } from './json/value.ts'
import { hashLeaf } from './merkle/hash.ts'
import { PROOF_HASHES_MAX, verifyInclusion } from './merkle/verify.ts'
import type { Receipt } from './receipt.ts'
import { type TreeHead, verifyTreeHead } from './tree-head.ts'

const { countOf, invalid, membersOf, textOf } = formsOf('invalid_log_proof')

/**
 * That a receipt is in its notary's log: the signed head it was anchored with, and the path from
 * its leaf to it.
 */
export type LogProof = {
  /** Leaves in the log at that head. */
  readonly size: number
  /** Hex, no prefix. */
  readonly root: string
  /** 0x + 65 bytes, over treeHeadDigest. */
  readonly signature: string
  /** Inclusion path, leaf to root, each 32 bytes as hex without prefix. */
  readonly path: readonly string[]
  readonly chain_id: number
  /** The anchor contract: 0x, lower case. */
  readonly contract: string
}

/**
 * The log proof that `value` is: exactly these members in exactly these forms. Throws FormatError
 * `invalid_log_proof` naming the member.
 */
export function parseLogProof(value: Json): LogProof {
  const proof = membersOf(value, 'the log proof', LOG_PROOF_MEMBERS)
  const { path } = proof
  if (!isJsonArray(path) || path.length > PROOF_HASHES_MAX)
    throw invalid('path', `an array of at most ${PROOF_HASHES_MAX} hashes`)
  return {
    size: countOf(proof.size, 'size'),
    root: textOf(proof.root, 'root', HASH_FORM),
    signature: textOf(proof.signature, 'signature', SIGNATURE_FORM),
    path: path.map((hash, index) => textOf(hash, `path ${index}`, HASH_FORM)),
    chain_id: countOf(proof.chain_id, 'chain_id'),
    contract: textOf(proof.contract, 'contract', ADDRESS_FORM),
  }
}

/** The leaf of a receipt in its notary's log: over the UTF-8 bytes of its canonical JSON. */
export function hashReceipt(receipt: Receipt): Uint8Array {
  return hashLeaf(encodeUtf8(canonicalizeJson(receipt)))
}

/**
 * Verifies that `receipt` is leaf `receipt.index` of the log with the proof's head. Throws
 * FormatError `invalid_proof`, ProofError `not_included`.
 *
 * Does NOT prove that the notary stands by that head: verifyLogHead does.
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
 * Verifies that the account of `publicKey` (65 bytes) signed the proof's head, for the chain and
 * contract it names. `recover` and what it throws as verifyTreeHead has it.
 *
 * Does NOT prove that the head was anchored there, nor that the log has no second version.
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
 * Both: the receipt is in the log, and the notary signed the log's head. Gives the leaf's place and
 * the head.
 */
export function verifyLogProof(input: {
  readonly proof: LogProof
  readonly receipt: Receipt
  readonly publicKey: Uint8Array
}): { readonly index: number; readonly head: TreeHead } {
  const { index } = verifyReceiptInLog(input)
  return { index, head: verifyLogHead(input) }
}

const LOG_PROOF_MEMBERS = ['size', 'root', 'signature', 'path', 'chain_id', 'contract'] as const

const HASH_FORM = formOf(/^[0-9a-f]{64}$/)
const SIGNATURE_FORM = formOf(/^0x[0-9a-f]{130}$/)
const ADDRESS_FORM = formOf(/^0x[0-9a-f]{40}$/)

function headOf(proof: LogProof): TreeHead {
  return { size: proof.size, root: decodeHex(proof.root) }
}
