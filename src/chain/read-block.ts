import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { decodeHex, encodeHex } from '../../attestation/bytes.ts'
import { decodeBlockHeader, HEADER_BYTES_MAX } from '../../attestation/evidence/block.ts'
import {
  encodeHeader,
  encodeReceipt,
  encodeTransaction,
  HeaderJson,
  ReceiptJson,
  TransactionJson,
} from './encode-block.ts'
import { Hash, HexBytes, type Rpc, RpcError, readAs, readValue, toQuantity } from './rpc.ts'

/** Transactions of a block that is read; the fullest of Ethereum have under 2,000. */
const BLOCK_TRANSACTIONS_MAX = 10_000

/**
 * A block as its bytes: what the tries and the hash are over. The hash of `header` is `hash`, so
 * its numbers are true.
 */
export type RawBlock = {
  readonly number: number
  /** 0x, lower case. */
  readonly hash: string
  /** RLP. */
  readonly header: Uint8Array
  /** 0x, lower case, in the order of the block. */
  readonly transactionHashes: readonly string[]
  readonly transactions: readonly Uint8Array[]
  readonly receipts: readonly Uint8Array[]
}

/**
 * The chain has the block, but it cannot be encoded so that its hashes come out; asking again gives
 * the same.
 */
export class BlockUnreadable extends Error {
  override readonly name = 'BlockUnreadable'
  readonly code:
    | 'too_large'
    | 'unknown_header'
    | 'unknown_transaction'
    | 'unknown_receipts'
    | 'not_in_block'
  constructor(code: BlockUnreadable['code'], message: string) {
    super(message)
    this.code = code
  }
}

/**
 * The block with this hash, null when the endpoint knows none. Header and transactions are those of
 * the hash; receipts are shown to be complete only by the root over them (proveTransaction). Throws
 * RpcError, and BlockUnreadable `too_large`, `unknown_header` (the chain's headers have fields that
 * encodeHeader does not know) and `unknown_transaction`.
 */
export async function fetchBlock(
  rpc: Rpc,
  hash: string,
  signal?: AbortSignal,
): Promise<RawBlock | null> {
  const value = await rpc.call('eth_getBlockByHash', [hash, true], signal)
  const block = readValue(BlockJson.nullable(), value)
  if (block === null) return null
  if (block.transactions.length > BLOCK_TRANSACTIONS_MAX)
    throw new BlockUnreadable(
      'too_large',
      `expected at most ${BLOCK_TRANSACTIONS_MAX} transactions in ${hash}`,
    )
  const { header, number } = readHeader(readValue(HeaderJson, value), hash)
  const transactions = await readTransactions(rpc, block.transactions, signal)
  const transactionHashes = block.transactions.map((transaction) => transaction.hash)
  const receipts = await fetchReceipts(rpc, { number, hash, transactionHashes }, signal)
  if (receipts === null) return null
  return { number, hash, header, transactionHashes, transactions, receipts }
}

const BlockJson = z.object({
  transactions: z.array(z.looseObject({ hash: Hash })),
})
const PlacedReceipt = ReceiptJson.extend({ transactionHash: Hash, blockHash: Hash })

function readHeader(
  json: z.infer<typeof HeaderJson>,
  hash: string,
): { header: Uint8Array; number: number } {
  const header = encodeWellFormed(json, hash)
  if (header.length > HEADER_BYTES_MAX)
    throw new BlockUnreadable('too_large', `expected a header of at most ${HEADER_BYTES_MAX} bytes`)
  if (hashOf(header) !== hash)
    throw new BlockUnreadable(
      'unknown_header',
      `expected a header that hashes to ${hash}: it has fields that are not known here, or the endpoint lies`,
    )
  try {
    return { header, number: decodeBlockHeader(header).number }
  } catch {
    throw new BlockUnreadable('unknown_header', `expected a header of Ethereum's form in ${hash}`)
  }
}

function encodeWellFormed(json: z.infer<typeof HeaderJson>, hash: string): Uint8Array {
  try {
    return encodeHeader(json)
  } catch {
    throw new RpcError('bad_answer', `expected the header of ${hash}, got malformed fields`)
  }
}

/**
 * Encoded from what is there, which costs no call; only what does not come out so is asked for by
 * itself.
 */
async function readTransactions(
  rpc: Rpc,
  jsons: readonly { readonly hash: string }[],
  signal: AbortSignal | undefined,
): Promise<readonly Uint8Array[]> {
  const encoded = jsons.map((json) => {
    const { data } = TransactionJson.safeParse(json)
    const raw = data === undefined ? null : encodeTransaction(data)
    return raw !== null && hashOf(raw) === json.hash ? raw : null
  })
  const missing = jsons.filter((_, at) => encoded[at] === null)
  const calls = missing.map(({ hash }) => ({
    method: 'eth_getRawTransactionByHash',
    params: [hash],
  }))
  const replies = calls.length === 0 ? [] : await rpc.batch(calls, signal)
  const found = new Map(missing.map(({ hash }, at) => [hash, replies[at]]))
  return jsons.map(({ hash }, at) => {
    const known = encoded[at]
    if (known) return known
    const reply = found.get(hash)
    const text = reply?.kind === 'result' ? HexBytes.safeParse(reply.value).data : undefined
    const raw = text === undefined ? null : decodeHex(text.toLowerCase())
    if (raw === null || hashOf(raw) !== hash)
      throw new BlockUnreadable(
        'unknown_transaction',
        `expected the bytes of transaction ${hash}, got others`,
      )
    return raw
  })
}

/** Null when they are of another block: the chain was reorganised meanwhile. */
async function fetchReceipts(
  rpc: Rpc,
  block: {
    readonly number: number
    readonly hash: string
    readonly transactionHashes: readonly string[]
  },
  signal: AbortSignal | undefined,
): Promise<readonly Uint8Array[] | null> {
  const whole = await fetchAllReceipts(rpc, block.number, signal)
  const receipts = whole ?? (await fetchEachReceipt(rpc, block.transactionHashes, signal))
  if (receipts.length !== block.transactionHashes.length) return null
  const isOfBlock = receipts.every(
    ({ blockHash, transactionHash }, at) =>
      blockHash === block.hash && transactionHash === block.transactionHashes[at],
  )
  return isOfBlock ? receipts.map(encodeReceipt) : null
}

/** Null when the endpoint has no such method, or all together are too large for it or for us. */
async function fetchAllReceipts(rpc: Rpc, number: number, signal: AbortSignal | undefined) {
  try {
    const value = await rpc.call('eth_getBlockReceipts', [toQuantity(number)], signal)
    return readValue(z.array(PlacedReceipt).nullable(), value) ?? []
  } catch (error) {
    const isMissing =
      error instanceof RpcError && (error.code === 'refused' || error.code === 'answer_too_large')
    if (isMissing) return null
    throw error
  }
}

async function fetchEachReceipt(
  rpc: Rpc,
  hashes: readonly string[],
  signal: AbortSignal | undefined,
) {
  const calls = hashes.map((hash) => ({ method: 'eth_getTransactionReceipt', params: [hash] }))
  const replies = await rpc.batch(calls, signal)
  return replies.flatMap((reply) => {
    const receipt = readAs(PlacedReceipt.nullable(), reply)
    return receipt === null ? [] : [receipt]
  })
}

function hashOf(bytes: Uint8Array): string {
  return `0x${encodeHex(keccak_256(bytes))}`
}
