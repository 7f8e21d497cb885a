import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { encodeHex, equalBytes, HASH_BYTES } from '#attestation/bytes.ts'
import {
  type BlockHeader,
  decodeBlockHeader,
  HEADER_BYTES_MAX,
} from '#attestation/evidence/block.ts'
import { buildTrieProof } from '#attestation/evidence/trie.ts'
import { Hash, HexBytes, Quantity, readAs, readValue } from '#audit/rpc-forms.ts'
import { type Rpc, type RpcCall, RpcError, toQuantity } from '#client/rpc.ts'
import {
  encodeData,
  encodeHeader,
  encodeReceipt,
  HeaderJson,
  ReceiptJson,
  TransactionType,
} from './encode-block.ts'
import { encodeTransaction } from './encode-transaction.ts'

/** Ethereum's fullest blocks have fewer than 2,000 transactions. */
const BLOCK_TRANSACTIONS_MAX = 10_000

/** `hash` is the hash of `header`. `number` is from `header`. */
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

export const BLOCK_FAULTS = [
  'too_large',
  'unknown_header',
  'unknown_transaction',
  'unknown_receipts',
  'not_in_block',
] as const

/** The chain has the block, but this gateway cannot read it. A retry does not help. */
export class BlockUnreadable extends Error {
  override readonly name = 'BlockUnreadable'
  readonly code: (typeof BLOCK_FAULTS)[number]
  constructor(code: BlockUnreadable['code'], message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Returns null if the endpoint does not know the block. The hash proves the header, the
 * transactions and the receipts. If the encoded JSON has another hash, the endpoint is asked for
 * the bytes. Throws RpcError, and BlockUnreadable with every code except `not_in_block`.
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
      `expected at most ${BLOCK_TRANSACTIONS_MAX} transactions in ${hash}, got ${block.transactions.length}`,
    )
  const header = await readHeader(rpc, { json: readValue(HeaderJson, value), hash }, signal)
  const { number, receiptsRoot } = decodeHeader(header, hash)
  const transactions = await readTransactions(rpc, block.transactions, signal)
  const place = { number, hash, receiptsRoot, transactions: block.transactions }
  const receipts = await readReceipts(rpc, place, signal)
  if (receipts === null) return null
  const transactionHashes = block.transactions.map((transaction) => transaction.hash)
  return { number, hash, header, transactionHashes, transactions, receipts }
}

const BlockJson = z.object({
  transactions: z.array(z.looseObject({ hash: Hash })),
})
type TransactionJson = z.infer<typeof BlockJson>['transactions'][number]

async function readHeader(
  rpc: Rpc,
  { json, hash }: { readonly json: z.infer<typeof HeaderJson>; readonly hash: string },
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  const encoded = encodeWellFormed(json, hash)
  const number = Quantity.safeParse(json.number)
  if (hashOf(encoded) === hash || !number.success) return checkHeader(encoded, hash)
  const call = { method: 'debug_getRawHeader', params: [toQuantity(number.data)] }
  const [raw] = await askForBytes(rpc, [call], signal)
  return checkHeader(raw ?? encoded, hash)
}

function checkHeader(header: Uint8Array, hash: string): Uint8Array {
  if (header.length > HEADER_BYTES_MAX)
    throw new BlockUnreadable('too_large', `expected a header of at most ${HEADER_BYTES_MAX} bytes`)
  if (hashOf(header) !== hash)
    throw new BlockUnreadable(
      'unknown_header',
      `expected a header that hashes to ${hash}: it has fields that are not known here, or the endpoint lies`,
    )
  return header
}

function decodeHeader(header: Uint8Array, hash: string): BlockHeader {
  try {
    return decodeBlockHeader(header)
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

/** Encodes the transactions. Requests the bytes only where the hash does not match. */
async function readTransactions(
  rpc: Rpc,
  jsons: readonly TransactionJson[],
  signal: AbortSignal | undefined,
): Promise<readonly Uint8Array[]> {
  const found = new Map<string, Uint8Array>()
  const keep = (hash: string, raw: Uint8Array | null | undefined) => {
    if (raw && hashOf(raw) === hash) found.set(hash, raw)
  }
  for (const json of jsons) keep(json.hash, encodeTransaction(json))
  for (const method of ['eth_getRawTransactionByHash', 'debug_getRawTransaction']) {
    const missing = jsons.filter(({ hash }) => !found.has(hash))
    if (missing.length === 0) break
    const calls = missing.map(({ hash }) => ({ method, params: [hash] }))
    const raws = await askForBytes(rpc, calls, signal)
    for (const [at, { hash }] of missing.entries()) keep(hash, raws[at])
  }
  return jsons.map((json) => {
    const raw = found.get(json.hash)
    if (raw !== undefined) return raw
    throw new BlockUnreadable(
      'unknown_transaction',
      `expected the bytes of transaction ${json.hash}: its type ${typeOf(json)} has fields ` +
        'that are not known here, and the endpoint gives no bytes',
    )
  })
}

type Place = {
  readonly number: number
  readonly hash: string
  readonly receiptsRoot: Uint8Array
  readonly transactions: readonly TransactionJson[]
}

/** Returns null if the receipts belong to another block, as after a reorganisation. */
async function readReceipts(
  rpc: Rpc,
  { number, hash, receiptsRoot, transactions }: Place,
  signal: AbortSignal | undefined,
): Promise<readonly Uint8Array[] | null> {
  if (transactions.length === 0) return []
  const hashes = transactions.map((transaction) => transaction.hash)
  const jsons =
    (await fetchAllReceipts(rpc, number, signal)) ?? (await fetchEachReceipt(rpc, hashes, signal))
  const isOfBlock = jsons.every(
    ({ blockHash, transactionHash }, at) => blockHash === hash && transactionHash === hashes[at],
  )
  if (jsons.length !== hashes.length || !isOfBlock) return null
  const encoded = jsons.map((json) => {
    const receipt = ReceiptJson.safeParse(json)
    return receipt.success ? encodeReceipt(receipt.data) : null
  })
  const wanted = { count: hashes.length, root: receiptsRoot }
  const receipts =
    thatAddUp(encoded, wanted) ?? thatAddUp(await fetchRawReceipts(rpc, number, signal), wanted)
  if (receipts !== null) return receipts
  const types = [...new Set(transactions.map(typeOf))].slice(0, TYPES_NAMED_MAX)
  throw new BlockUnreadable(
    'unknown_receipts',
    `expected receipts that add up to the root in block ${hash}: receipts of some type have ` +
      "fields that are not known here, or the endpoint lies; the block's types are " +
      types.join(', '),
  )
}

/** Returns null if the number or the root of the receipts is wrong. */
function thatAddUp(
  receipts: readonly (Uint8Array | null)[],
  { count, root }: { readonly count: number; readonly root: Uint8Array },
): readonly Uint8Array[] | null {
  const whole = receipts
    .filter((receipt) => receipt !== null)
    .filter(({ length }) => length >= HASH_BYTES)
  if (whole.length !== count || receipts.length !== count) return null
  return equalBytes(buildTrieProof(whole, 0).root, root) ? whole : null
}

const TYPES_NAMED_MAX = 8

function typeOf({ type }: TransactionJson): string {
  const { data = '' } = TransactionType.safeParse(type)
  return data === '' ? 'of no known form' : data.toLowerCase()
}

const PlacedReceipt = z.looseObject({ transactionHash: Hash, blockHash: Hash })

/** Returns null if the endpoint lacks the method or the answer is too large. */
async function fetchAllReceipts(rpc: Rpc, number: number, signal: AbortSignal | undefined) {
  try {
    const value = await rpc.call('eth_getBlockReceipts', [toQuantity(number)], signal)
    return readValue(z.array(PlacedReceipt).nullable(), value) ?? []
  } catch (error) {
    if (isRefusal(error)) return null
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

/** Returns an empty list if the endpoint lacks the method or the answer is too large. */
async function fetchRawReceipts(
  rpc: Rpc,
  number: number,
  signal: AbortSignal | undefined,
): Promise<readonly Uint8Array[]> {
  try {
    const value = await rpc.call('debug_getRawReceipts', [toQuantity(number)], signal)
    const { data = [] } = z.array(HexBytes).safeParse(value)
    return data.map(encodeData)
  } catch (error) {
    if (isRefusal(error)) return []
    throw error
  }
}

/**
 * True if the endpoint lacks the method, or if the answer is too large for the endpoint or for this
 * gateway.
 */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof RpcError && (error.code === 'refused' || error.code === 'answer_too_large')
  )
}

/** Null for each answer that is not bytes. */
async function askForBytes(
  rpc: Rpc,
  calls: readonly RpcCall[],
  signal: AbortSignal | undefined,
): Promise<readonly (Uint8Array | null)[]> {
  const replies = await rpc.batch(calls, signal)
  return replies.map((reply) => {
    const { data } = HexBytes.safeParse(reply.kind === 'result' ? reply.value : null)
    return data === undefined ? null : encodeData(data)
  })
}

function hashOf(bytes: Uint8Array): string {
  return `0x${encodeHex(keccak_256(bytes))}`
}
