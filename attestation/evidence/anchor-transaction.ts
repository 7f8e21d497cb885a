import { keccak_256 } from '@noble/hashes/sha3.js'
import { addressOf, recoverPublicKey, SIGNATURE_BYTES } from '../account.ts'
import { concatBytes, encodeHex, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { type AnchorCall, decodeAnchorCall } from './anchor-call.ts'
import { decodeRlp, encodeRlp, type RlpItem, rlpBytes, rlpList, rlpNumber, rlpUint256 } from './rlp.ts'

/** Bytes of a raw anchor transaction. Those that this project signs have about 340. */
export const TRANSACTION_BYTES_MAX = 1024

/** What a signed anchor transaction says. All of it is covered by its hash; `relayer` by its signature. */
export type AnchorTransaction = {
  /** Keccak-256 of the raw transaction: 0x, lower case. */
  readonly hash: string
  /** The account that signed and pays: 0x, lower case. */
  readonly relayer: string
  readonly chainId: number
  readonly nonce: number
  /** The account that is called: 0x, lower case. */
  readonly contract: string
  readonly call: AnchorCall
}

/**
 * The anchor transaction that attacker-controlled `raw` bytes are: a signed EIP-1559 transaction (0x02 || RLP of 12
 * fields) that calls `anchor` with no value and no access list. Every byte is accounted for. Throws FormatError
 * `invalid_transaction`, `invalid_anchor_call`, `invalid_rlp`, `invalid_signature`, `high_s`, ProofError
 * `unrecoverable`.
 *
 * Does NOT prove that it was mined, that it succeeded, or that the head in it is its notary's.
 */
export function decodeAnchorTransaction(raw: Uint8Array): AnchorTransaction {
  if (raw.length > TRANSACTION_BYTES_MAX)
    throw invalid(`expected at most ${TRANSACTION_BYTES_MAX} bytes, got ${raw.length}`)
  if (raw[0] !== EIP1559_TYPE) throw invalid('expected an EIP-1559 transaction (type 2)')
  const fields = rlpList(decodeRlp(raw.subarray(1)), 'the transaction')
  if (fields.length !== FIELDS_COUNT) throw invalid(`expected ${FIELDS_COUNT} fields, got ${fields.length}`)
  const [chainId, nonce, tip, feeCap, gasLimit, to, value, data, accessList] = fields
  for (const amount of [tip, feeCap, gasLimit]) rlpUint256(amount, 'fees and gas limit')
  if (rlpUint256(value, 'value') !== 0n) throw invalid('expected a value of 0')
  if (rlpList(accessList, 'accessList').length > 0) throw invalid('expected no access list')
  return {
    hash: `0x${encodeHex(keccak_256(raw))}`,
    relayer: recoverRelayer(fields),
    chainId: rlpNumber(chainId, 'chainId'),
    nonce: rlpNumber(nonce, 'nonce'),
    contract: `0x${encodeHex(rlpBytes(to, 'to', ADDRESS_BYTES))}`,
    call: decodeAnchorCall(rlpBytes(data, 'data')),
  }
}

const EIP1559_TYPE = 2
/** EIP-1559: nine fields that are signed, then y parity, r and s. */
const FIELDS_COUNT = 12
const SIGNED_FIELDS_COUNT = 9
const ADDRESS_BYTES = 20

function recoverRelayer(fields: readonly RlpItem[]): string {
  const [yParity, r, s] = fields.slice(SIGNED_FIELDS_COUNT)
  const parity = rlpNumber(yParity, 'yParity')
  if (parity > 1) throw invalid('expected a y parity of 0 or 1')
  const signature = new Uint8Array(SIGNATURE_BYTES)
  signature.set(padScalar(r, 'r'), 0)
  signature.set(padScalar(s, 's'), HASH_BYTES)
  signature[SIGNATURE_BYTES - 1] = 27 + parity
  const signed = concatBytes(Uint8Array.of(EIP1559_TYPE), encodeRlp(fields.slice(0, SIGNED_FIELDS_COUNT)))
  return addressOf(recoverPublicKey({ digest: keccak_256(signed), signature }))
}

function padScalar(item: RlpItem | undefined, name: string): Uint8Array {
  rlpUint256(item, name)
  const scalar = rlpBytes(item, name)
  const padded = new Uint8Array(HASH_BYTES)
  padded.set(scalar, HASH_BYTES - scalar.length)
  return padded
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_transaction', `transaction: ${message}`)
}
