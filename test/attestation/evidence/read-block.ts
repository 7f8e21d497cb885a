import { encodeRlp, keccak256, toBeArray } from 'ethers'
import type { Rpc } from '#client/rpc.ts'

/** A block as its bytes, all 0x hex: what the tries and the hash are over. */
export type RawBlock = {
  readonly number: number
  readonly hash: string
  readonly header: string
  readonly transactions: readonly string[]
  readonly receipts: readonly string[]
  /** As the chain names them. */
  readonly transactionsRoot: string
  readonly receiptsRoot: string
  readonly timestamp: number
}

/**
 * A block of a chain, encoded by ethers; throws when the header does not have the hash that the
 * chain names.
 */
export async function readBlock(rpc: Rpc, tag: string): Promise<RawBlock> {
  const block = (await rpc.call('eth_getBlockByNumber', [tag, false])) as BlockReply
  const receipts = (await rpc.call('eth_getBlockReceipts', [
    block.number,
  ])) as readonly ReceiptReply[]
  const raws = await Promise.all(
    block.transactions.map((hash) => rpc.call('eth_getRawTransactionByHash', [hash])),
  )
  const header = encodeHeader(block)
  if (keccak256(header) !== block.hash)
    throw new Error('the header has fields that this does not know')
  return {
    number: Number(block.number),
    hash: block.hash,
    header,
    transactions: raws.map(String),
    receipts: receipts.map(encodeReceipt),
    transactionsRoot: block.transactionsRoot,
    receiptsRoot: block.receiptsRoot,
    timestamp: Number(block.timestamp),
  }
}

/**
 * Fields of a header in order, as JSON-RPC names them; `quantity` fields have no leading zeros in
 * RLP.
 */
const HEADER_FIELDS: readonly (readonly [name: string, kind: 'data' | 'quantity'])[] = [
  ['parentHash', 'data'],
  ['sha3Uncles', 'data'],
  ['miner', 'data'],
  ['stateRoot', 'data'],
  ['transactionsRoot', 'data'],
  ['receiptsRoot', 'data'],
  ['logsBloom', 'data'],
  ['difficulty', 'quantity'],
  ['number', 'quantity'],
  ['gasLimit', 'quantity'],
  ['gasUsed', 'quantity'],
  ['timestamp', 'quantity'],
  ['extraData', 'data'],
  ['mixHash', 'data'],
  ['nonce', 'data'],
  ['baseFeePerGas', 'quantity'],
  ['withdrawalsRoot', 'data'],
  ['blobGasUsed', 'quantity'],
  ['excessBlobGas', 'quantity'],
  ['parentBeaconBlockRoot', 'data'],
  ['requestsHash', 'data'],
]

type BlockReply = Readonly<Record<string, string>> & {
  readonly number: string
  readonly hash: string
  readonly timestamp: string
  readonly transactionsRoot: string
  readonly receiptsRoot: string
  readonly transactions: readonly string[]
}

type ReceiptReply = {
  readonly type: string
  readonly status: string
  readonly cumulativeGasUsed: string
  readonly logsBloom: string
  readonly logs: readonly {
    readonly address: string
    readonly topics: readonly string[]
    readonly data: string
  }[]
}

/** RLP of the header that JSON-RPC describes, with as many of the later fields as it has. */
export function encodeHeader(block: Readonly<Record<string, unknown>>): string {
  return encodeRlp(
    HEADER_FIELDS.flatMap(([name, kind]) => {
      const value = block[name]
      if (typeof value !== 'string') return []
      return [kind === 'data' ? value : toBeArray(value)]
    }),
  )
}

function encodeReceipt({ type, status, cumulativeGasUsed, logsBloom, logs }: ReceiptReply): string {
  const fields = encodeRlp([
    toBeArray(status),
    toBeArray(cumulativeGasUsed),
    logsBloom,
    logs.map(({ address, topics, data }) => [address, [...topics], data]),
  ])
  return Number(type) === 0 ? fields : `0x${type.slice(2).padStart(2, '0')}${fields.slice(2)}`
}
