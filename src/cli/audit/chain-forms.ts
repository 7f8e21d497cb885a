import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { decodeHex, encodeHex, encodeUtf8 } from '../../../attestation/bytes.ts'

/** Numbers and bytes as the Ethereum JSON-RPC specification writes them. */
export const Quantity = z
  .string()
  .regex(/^0x[0-9a-fA-F]{1,14}$/)
  .transform((text) => Number.parseInt(text, 16))
  .refine(Number.isSafeInteger)
export const HexBytes = lowerCase(/^0x(?:[0-9a-fA-F]{2})*$/)
const Hash = lowerCase(/^0x[0-9a-fA-F]{64}$/)
const Address = lowerCase(/^0x[0-9a-fA-F]{40}$/)
const Bytes = HexBytes.transform((text) => decodeHex(text))

export const BlockForm = z.object({ hash: Hash, timestamp: Quantity })

export const TransactionForm = z.object({
  hash: Hash,
  from: Address,
  nonce: Quantity,
  to: Address.nullable(),
  input: Bytes,
})

/** A block with its transactions, of each as much as finds one. */
export const FullBlockForm = z.object({
  transactions: z.array(z.object({ hash: Hash, from: Address, nonce: Quantity })),
})

export const LogForm = z.object({
  address: Address,
  topics: z.array(Hash).max(4),
  data: Bytes,
  blockNumber: Quantity,
  transactionHash: Hash,
})

export const ReceiptForm = z.object({
  transactionHash: Hash,
  blockNumber: Quantity,
  blockHash: Hash,
  status: Quantity,
  /** The contract that it created itself. */
  contractAddress: Address.nullish(),
  logs: z.array(LogForm),
})

/** What the contract says of a notary. Roots are 32 bytes. */
export type AnchorEvent = {
  readonly kind: 'anchored' | 'equivocation'
  /** Whoever else emits the same topics is not the contract: 0x, lower case. */
  readonly address: string
  readonly notary: string
  readonly size: number
  /** Of an equivocation, the root of the head that came second. */
  readonly root: Uint8Array
  /** Of an equivocation, the root that was there first. */
  readonly kept: Uint8Array | null
  readonly blockNumber: number
  readonly txHash: string
}

/** First topics of the contract's events; src/chain/contract/Affidavit.sol. */
export const EVENT_TOPICS = {
  anchored: topicOf('Anchored(address,uint64,bytes32)'),
  equivocation: topicOf('Equivocation(address,uint64,bytes32,bytes32)'),
} as const

/** The event that a log entry of the chain is, or null when it is none of the contract's. */
export function decodeAnchorEvent(entry: z.infer<typeof LogForm>): AnchorEvent | null {
  const [topic, notary, size] = entry.topics
  const kind =
    topic === EVENT_TOPICS.anchored ? 'anchored' : topic === EVENT_TOPICS.equivocation ? 'equivocation' : null
  if (kind === null || notary === undefined || size === undefined || entry.topics.length !== 3) return null
  if (entry.data.length !== (kind === 'anchored' ? 32 : 64) || !/^0x0{24}/.test(notary)) return null
  const count = BigInt(size)
  if (count > BigInt(Number.MAX_SAFE_INTEGER)) return null
  return {
    kind,
    address: entry.address,
    notary: `0x${notary.slice(-40)}`,
    size: Number(count),
    root: entry.data.slice(-32),
    kept: kind === 'anchored' ? null : entry.data.slice(0, 32),
    blockNumber: entry.blockNumber,
    txHash: entry.transactionHash,
  }
}

function lowerCase(form: RegExp) {
  return z
    .string()
    .regex(form)
    .transform((text) => text.toLowerCase())
}

function topicOf(signature: string): string {
  return `0x${encodeHex(keccak_256(encodeUtf8(signature)))}`
}
