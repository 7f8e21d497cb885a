import { keccak_256 } from '@noble/hashes/sha3.js'
import { concatBytes, decodeHex, encodeHex, encodeUtf8, equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import type { TreeHead } from '../tree-head.ts'
import { encodeUintWord } from './anchor-call.ts'
import { decodeRlp, type RlpItem, rlpBytes, rlpList, rlpNumber, rlpUint256 } from './rlp.ts'

/** Bytes of a transaction's receipt in a bundle. One of an anchor has about 450. */
export const TRANSACTION_RECEIPT_BYTES_MAX = 16_384

/** What the chain says of a transaction that it executed. */
export type TransactionReceipt = {
  readonly hasSucceeded: boolean
  readonly events: readonly TransactionEvent[]
}

/** One entry of a receipt's log. `address` is the contract's: 0x, lower case; topics are 32 bytes each. */
export type TransactionEvent = {
  readonly address: string
  readonly topics: readonly Uint8Array[]
  readonly data: Uint8Array
}

/**
 * The receipt of an EIP-1559 transaction that attacker-controlled `bytes` are: 0x02 || RLP of status, cumulative
 * gas, bloom and events (EIP-2718, EIP-658). Throws FormatError `invalid_transaction_receipt` and `invalid_rlp`.
 *
 * Does NOT prove that any chain gave it: see verifyTrieProof.
 */
export function decodeTransactionReceipt(bytes: Uint8Array): TransactionReceipt {
  if (bytes.length > TRANSACTION_RECEIPT_BYTES_MAX)
    throw invalid(`expected at most ${TRANSACTION_RECEIPT_BYTES_MAX} bytes, got ${bytes.length}`)
  if (bytes[0] !== EIP1559_TYPE) throw invalid('expected the receipt of an EIP-1559 transaction (type 2)')
  const fields = rlpList(decodeRlp(bytes.subarray(1)), "the transaction's receipt")
  if (fields.length !== 4) throw invalid(`expected 4 fields, got ${fields.length}`)
  const [status, cumulativeGas, bloom, events] = fields
  const statusCode = rlpNumber(status, 'status')
  if (statusCode > 1) throw invalid('expected a status of 0 or 1')
  rlpUint256(cumulativeGas, 'cumulative gas')
  rlpBytes(bloom, 'bloom', BLOOM_BYTES)
  return { hasSucceeded: statusCode === 1, events: rlpList(events, 'events').map(eventOf) }
}

/** Whether the contract at `contract` (0x, lower case) says in this receipt that it took `notary`'s head. */
export function hasAnchoredEvent(
  receipt: TransactionReceipt,
  anchored: { readonly contract: string; readonly notary: string; readonly head: TreeHead },
): boolean {
  const { contract, notary, head } = anchored
  const expected = concatBytes(
    ANCHORED_TOPIC,
    new Uint8Array(HASH_BYTES - ADDRESS_BYTES),
    decodeHex(notary),
    encodeUintWord(head.size),
    head.root,
  )
  return receipt.events.some(
    ({ address, topics, data }) =>
      address === contract && topics.length === 3 && equalBytes(concatBytes(...topics, data), expected),
  )
}

const EIP1559_TYPE = 2
const ADDRESS_BYTES = 20
const BLOOM_BYTES = 256
/** The event's first topic: the hash of its signature; src/chain/contract/Affidavit.sol. */
const ANCHORED_TOPIC = keccak_256(encodeUtf8('Anchored(address,uint64,bytes32)'))

function eventOf(item: RlpItem): TransactionEvent {
  const fields = rlpList(item, 'an event')
  if (fields.length !== 3) throw invalid(`expected 3 fields of an event, got ${fields.length}`)
  const [address, topics, data] = fields
  return {
    address: `0x${encodeHex(rlpBytes(address, "an event's address", ADDRESS_BYTES))}`,
    topics: rlpList(topics, "an event's topics").map((topic) => rlpBytes(topic, 'a topic', HASH_BYTES)),
    data: rlpBytes(data, "an event's data"),
  }
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_transaction_receipt', `receipt: ${message}`)
}
