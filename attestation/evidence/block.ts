import { keccak_256 } from '@noble/hashes/sha3.js'
import { concatBytes, decodeHex, encodeHex, encodeUtf8, equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { encodeUintWord, type TreeHead } from '../tree-head.ts'
import { decodeRlp, type RlpItem, rlpBytes, rlpList, rlpNumber, rlpUint256 } from './rlp.ts'

/**
 * Maximum bytes of a header. A header on Ethereum has about 600. Some chains put validator lists in
 * extraData.
 */
export const HEADER_BYTES_MAX = 16_384

export type BlockHeader = {
  /** Keccak-256 of the header, to look up on the chain: 0x, lower case. */
  readonly hash: string
  readonly number: number
  /** Unix seconds. The block's producer sets it. */
  readonly timestamp: number
  readonly transactionsRoot: Uint8Array
  readonly receiptsRoot: Uint8Array
}

/**
 * Decodes the header in attacker-controlled `bytes`, RLP (Ethereum yellow paper, section 4.4).
 * Checks the forms of the 15 fields that every header has. Any number of byte strings may follow,
 * because later forks added fields (base fee, withdrawals root, …). The hash covers them. Throws
 * FormatError `invalid_block_header` and `invalid_rlp`. Does NOT prove that any chain has this
 * block: compare its hash with the chain's.
 */
export function decodeBlockHeader(bytes: Uint8Array): BlockHeader {
  if (bytes.length > HEADER_BYTES_MAX)
    throw invalid(`expected a header of at most ${HEADER_BYTES_MAX} bytes, got ${bytes.length}`)
  const fields = rlpList(decodeRlp(bytes), 'a block header')
  if (fields.length < FIELDS.length)
    throw invalid(`expected a header of at least ${FIELDS.length} fields, got ${fields.length}`)
  for (const [at, field] of fields.entries()) {
    const { name, form } = FIELDS[at] ?? LATER_FIELD
    if (form === 'number') rlpUint256(field, `the header's ${name}`)
    else rlpBytes(field, `the header's ${name}`, form === 'bytes' ? undefined : form)
  }
  return {
    hash: `0x${encodeHex(keccak_256(bytes))}`,
    transactionsRoot: rlpBytes(fields[4], 'transactionsRoot', HASH_BYTES),
    receiptsRoot: rlpBytes(fields[5], 'receiptsRoot', HASH_BYTES),
    number: rlpNumber(fields[8], "the header's number"),
    timestamp: rlpNumber(fields[11], "the header's timestamp"),
  }
}

/** The form of a byte string: its length, 'number' (no leading zeros) or 'bytes' (any length). */
type FieldForm = number | 'number' | 'bytes'

const LATER_FIELD: { readonly name: string; readonly form: FieldForm } = {
  name: 'later fields',
  form: 'bytes',
}

/**
 * Order and forms of the fields: yellow paper, section 4.4, equation 44 (Shanghai version).
 * EIP-1559 and later EIPs append fields.
 */
const FIELDS: readonly { readonly name: string; readonly form: FieldForm }[] = [
  { name: 'parentHash', form: 32 },
  { name: 'ommersHash', form: 32 },
  { name: 'beneficiary', form: 20 },
  { name: 'stateRoot', form: 32 },
  { name: 'transactionsRoot', form: 32 },
  { name: 'receiptsRoot', form: 32 },
  { name: 'logsBloom', form: 256 },
  { name: 'difficulty', form: 'number' },
  { name: 'number', form: 'number' },
  { name: 'gasLimit', form: 'number' },
  { name: 'gasUsed', form: 'number' },
  { name: 'timestamp', form: 'number' },
  { name: 'extraData', form: 'bytes' },
  { name: 'mixHash', form: 32 },
  { name: 'nonce', form: 8 },
]

function invalid(message: string): FormatError {
  return new FormatError('invalid_block_header', message)
}

/** Maximum bytes of a transaction's receipt in a bundle. The receipt of an anchor has about 450. */
export const TRANSACTION_RECEIPT_BYTES_MAX = 16_384

type TransactionReceipt = {
  readonly hasSucceeded: boolean
  readonly events: readonly TransactionEvent[]
}

/** `address` is the contract's address: 0x, lower case. Each topic has 32 bytes. */
type TransactionEvent = {
  readonly address: string
  readonly topics: readonly Uint8Array[]
  readonly data: Uint8Array
}

/**
 * Decodes the receipt of an EIP-1559 transaction in attacker-controlled `bytes`: 0x02 || RLP of
 * status, cumulative gas, bloom and events (EIP-2718, EIP-658). Throws FormatError
 * `invalid_transaction_receipt` and `invalid_rlp`.
 *
 * Does NOT prove that the receipt is from any chain: see verifyTrieProof.
 */
export function decodeTransactionReceipt(bytes: Uint8Array): TransactionReceipt {
  if (bytes.length > TRANSACTION_RECEIPT_BYTES_MAX)
    throw invalidReceipt(
      `expected at most ${TRANSACTION_RECEIPT_BYTES_MAX} bytes, got ${bytes.length}`,
    )
  if (bytes[0] !== EIP1559_TYPE)
    throw invalidReceipt('expected the receipt of an EIP-1559 transaction (type 2)')
  const fields = rlpList(decodeRlp(bytes.subarray(1)), "the transaction's receipt")
  if (fields.length !== 4) throw invalidReceipt(`expected 4 fields, got ${fields.length}`)
  const [status, cumulativeGas, bloom, events] = fields
  const statusCode = rlpNumber(status, 'status')
  if (statusCode > 1) throw invalidReceipt('expected a status of 0 or 1')
  rlpUint256(cumulativeGas, 'cumulative gas')
  rlpBytes(bloom, 'bloom', BLOOM_BYTES)
  return { hasSucceeded: statusCode === 1, events: rlpList(events, 'events').map(eventOf) }
}

/**
 * True if an event in the receipt shows that the contract at `contract` (0x, lower case) accepted
 * the head of `notary`.
 */
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
      address === contract &&
      topics.length === 3 &&
      equalBytes(concatBytes(...topics, data), expected),
  )
}

const EIP1559_TYPE = 2
const ADDRESS_BYTES = 20
const BLOOM_BYTES = 256
/** The event's first topic: the hash over its signature (contracts/Affidavit.sol). */
const ANCHORED_TOPIC = keccak_256(encodeUtf8('Anchored(address,uint64,bytes32)'))

function eventOf(item: RlpItem): TransactionEvent {
  const fields = rlpList(item, 'an event')
  if (fields.length !== 3)
    throw invalidReceipt(`expected 3 fields of an event, got ${fields.length}`)
  const [address, topics, data] = fields
  return {
    address: `0x${encodeHex(rlpBytes(address, "an event's address", ADDRESS_BYTES))}`,
    topics: rlpList(topics, "an event's topics").map((topic) =>
      rlpBytes(topic, 'a topic', HASH_BYTES),
    ),
    data: rlpBytes(data, "an event's data"),
  }
}

function invalidReceipt(message: string): FormatError {
  return new FormatError('invalid_transaction_receipt', `receipt: ${message}`)
}
