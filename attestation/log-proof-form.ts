import { formOf, formsOf } from './json/forms.ts'
import { isJsonArray, type Json } from './json/value.ts'
import { PROOF_HASHES_MAX } from './merkle/hash.ts'

const { countOf, invalid, membersOf, textOf } = formsOf('invalid_log_proof')

/**
 * The proof that a receipt is in its notary's log: the signed head, and the path from the receipt's
 * leaf to the head.
 */
export type LogProof = {
  readonly size: number
  /** Hex, no prefix. */
  readonly root: string
  /** 0x + 65 bytes: the signature over treeHeadDigest. */
  readonly signature: string
  /** From leaf to root, 32 bytes each, as hex without prefix. */
  readonly path: readonly string[]
  readonly chain_id: number
  /** The anchor contract: 0x, lower case. */
  readonly contract: string
}

/**
 * Reads the log proof in `value`. It must have exactly these members in exactly these forms. Throws
 * FormatError `invalid_log_proof` naming the member.
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

const LOG_PROOF_MEMBERS = ['size', 'root', 'signature', 'path', 'chain_id', 'contract'] as const

const HASH_FORM = formOf(/^[0-9a-f]{64}$/)
const SIGNATURE_FORM = formOf(/^0x[0-9a-f]{130}$/)
const ADDRESS_FORM = formOf(/^0x[0-9a-f]{40}$/)
