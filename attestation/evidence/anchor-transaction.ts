import { keccak_256 } from '@noble/hashes/sha3.js'
import { addressOf, recoverPublicKey, SIGNATURE_BYTES } from '../account.ts'
import { concatBytes, encodeHex, encodeUtf8, equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { encodeUintWord } from '../tree-head.ts'
import {
  decodeRlp,
  encodeRlp,
  type RlpItem,
  rlpBytes,
  rlpList,
  rlpNumber,
  rlpUint256,
} from './rlp.ts'

/** Maximum bytes of a raw anchor transaction. This project's transactions have about 340. */
export const TRANSACTION_BYTES_MAX = 1024

export type AnchorTransaction = {
  /** Keccak-256 of the raw transaction: 0x, lower case. */
  readonly hash: string
  /** The account that signed the transaction and pays for it: 0x, lower case. */
  readonly relayer: string
  readonly chainId: number
  readonly nonce: number
  /** The account that the transaction calls: 0x, lower case. */
  readonly contract: string
  readonly call: AnchorCall
}

/**
 * Decodes the anchor transaction in attacker-controlled `raw` bytes: a signed EIP-1559 transaction
 * (0x02 || RLP of 12 fields) that calls `anchor` with no value and no access list. Checks every
 * byte. Throws FormatError `invalid_transaction`, `invalid_anchor_call`, `invalid_rlp`,
 * `invalid_signature`, `high_s`, ProofError `unrecoverable`.
 *
 * Does NOT prove that the transaction was mined, that it succeeded, or that its head is from the
 * notary.
 */
export function decodeAnchorTransaction(raw: Uint8Array): AnchorTransaction {
  if (raw.length > TRANSACTION_BYTES_MAX)
    throw invalid(`expected at most ${TRANSACTION_BYTES_MAX} bytes, got ${raw.length}`)
  if (raw[0] !== EIP1559_TYPE) throw invalid('expected an EIP-1559 transaction (type 2)')
  const fields = rlpList(decodeRlp(raw.subarray(1)), 'the transaction')
  if (fields.length !== FIELDS_COUNT)
    throw invalid(`expected ${FIELDS_COUNT} fields, got ${fields.length}`)
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
/** EIP-1559: nine signed fields, then y parity, r and s. */
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
  const signed = concatBytes(
    Uint8Array.of(EIP1559_TYPE),
    encodeRlp(fields.slice(0, SIGNED_FIELDS_COUNT)),
  )
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

export type AnchorCall = {
  readonly size: number
  /** 32 bytes. */
  readonly root: Uint8Array
  /** 65 bytes. */
  readonly signature: Uint8Array
}

/**
 * Decodes the arguments in the call data `anchor(uint64 size, bytes32 root, bytes signature)`.
 * Accepts only the canonical encoding of the contract ABI specification, 228 bytes. Throws
 * FormatError `invalid_anchor_call`.
 */
export function decodeAnchorCall(data: Uint8Array): AnchorCall {
  if (data.length !== CALL_BYTES)
    throw invalidCall(`${CALL_BYTES} bytes of call data, got ${data.length}`)
  const words = data.subarray(SELECTOR_BYTES)
  const call = {
    size: decodeSize(words.subarray(0, WORD_BYTES)),
    root: words.slice(WORD_BYTES, 2 * WORD_BYTES),
    signature: words.slice(4 * WORD_BYTES, 4 * WORD_BYTES + SIGNATURE_BYTES),
  }
  // Checks the rest: selector, offset, length, padding.
  if (!equalBytes(encodeAnchorCall(call), data)) throw invalidCall('a canonical call of anchor')
  return call
}

export function encodeAnchorCall({ size, root, signature }: AnchorCall): Uint8Array {
  return concatBytes(
    SELECTOR,
    encodeUintWord(size),
    root,
    encodeUintWord(3 * WORD_BYTES),
    encodeUintWord(signature.length),
    signature,
    new Uint8Array(SIGNATURE_WORDS * WORD_BYTES - SIGNATURE_BYTES),
  )
}

const WORD_BYTES = 32
const SELECTOR_BYTES = 4
/** The first bytes of the hash over the function's signature (contracts/Affidavit.sol). */
const SELECTOR = keccak_256(encodeUtf8('anchor(uint64,bytes32,bytes)')).slice(0, SELECTOR_BYTES)
const SIGNATURE_WORDS = Math.ceil(SIGNATURE_BYTES / WORD_BYTES)
/** Selector, size, root, the signature's offset and length, the signature padded to whole words. */
const CALL_BYTES = SELECTOR_BYTES + (4 + SIGNATURE_WORDS) * WORD_BYTES

function decodeSize(word: Uint8Array): number {
  const view = new DataView(word.buffer, word.byteOffset, HASH_BYTES)
  const size = Number(view.getBigUint64(WORD_BYTES - 8))
  if (!Number.isSafeInteger(size)) throw invalidCall('a size of at most 2^53-1')
  return size
}

function invalidCall(expectation: string): FormatError {
  return new FormatError('invalid_anchor_call', `expected ${expectation}`)
}
