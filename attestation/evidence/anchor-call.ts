import { keccak_256 } from '@noble/hashes/sha3.js'
import { SIGNATURE_BYTES } from '../account.ts'
import { concatBytes, encodeUtf8, equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'

/** What an anchor brings to the contract. */
export type AnchorCall = {
  readonly size: number
  /** 32 bytes. */
  readonly root: Uint8Array
  /** 65 bytes. */
  readonly signature: Uint8Array
}

/**
 * The arguments of the call data `anchor(uint64 size, bytes32 root, bytes signature)`, in the one encoding that the
 * contract ABI specification gives for them, 228 bytes: no other offset, no other padding, nothing after it. Throws
 * FormatError `invalid_anchor_call`.
 */
export function decodeAnchorCall(data: Uint8Array): AnchorCall {
  if (data.length !== CALL_BYTES) throw invalid(`${CALL_BYTES} bytes of call data, got ${data.length}`)
  const words = data.subarray(SELECTOR_BYTES)
  const call = {
    size: decodeSize(words.subarray(0, WORD_BYTES)),
    root: words.slice(WORD_BYTES, 2 * WORD_BYTES),
    signature: words.slice(4 * WORD_BYTES, 4 * WORD_BYTES + SIGNATURE_BYTES),
  }
  // Whatever is not looked at above (selector, offset, length, padding) has one right value.
  if (!equalBytes(encodeAnchorCall(call), data)) throw invalid('a canonical call of anchor')
  return call
}

/** The call data of `anchor` with these arguments. */
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

/** A number of 0 to 2^53-1 as a word of the contract ABI: 32 bytes, big-endian. */
export function encodeUintWord(value: number): Uint8Array {
  const word = new Uint8Array(WORD_BYTES)
  new DataView(word.buffer).setBigUint64(WORD_BYTES - 8, BigInt(value))
  return word
}

const WORD_BYTES = 32
const SELECTOR_BYTES = 4
/** The first bytes of the hash of the function's signature; src/chain/contract/Affidavit.sol. */
const SELECTOR = keccak_256(encodeUtf8('anchor(uint64,bytes32,bytes)')).slice(0, SELECTOR_BYTES)
const SIGNATURE_WORDS = Math.ceil(SIGNATURE_BYTES / WORD_BYTES)
/** Selector, size, root, offset and length of the signature, the signature padded to whole words. */
const CALL_BYTES = SELECTOR_BYTES + (4 + SIGNATURE_WORDS) * WORD_BYTES

function decodeSize(word: Uint8Array): number {
  const view = new DataView(word.buffer, word.byteOffset, HASH_BYTES)
  const size = Number(view.getBigUint64(WORD_BYTES - 8))
  if (!Number.isSafeInteger(size)) throw invalid('a size of at most 2^53-1')
  return size
}

function invalid(expectation: string): FormatError {
  return new FormatError('invalid_anchor_call', `expected ${expectation}`)
}
