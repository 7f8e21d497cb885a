import { z } from 'zod'
import { type Rpc, RpcError } from './rpc.ts'
import { BigQuantity, Hash, HexBytes, Quantity, readAs } from './rpc-values.ts'

/** Where the chain stands for one relayer, read in one batch. */
export type ChainView = {
  readonly chainId: number
  /** Number of the newest block. */
  readonly blockNumber: number
  /** Transactions of the relayer in blocks so far = the nonce the chain expects next. */
  readonly nonce: number
}

/** A transaction in a block. */
export type TransactionReceipt = {
  readonly txHash: string
  readonly blockNumber: number
  /** 0x, lower case. */
  readonly blockHash: string
  readonly succeeded: boolean
  readonly gasUsed: number
}

/** Reads chain id, newest block and the relayer's nonce. Throws RpcError. */
export async function fetchChainView(rpc: Rpc, relayer: string, signal?: AbortSignal): Promise<ChainView> {
  const [chainId, blockNumber, nonce] = await rpc.batch(
    [
      { method: 'eth_chainId', params: [] },
      { method: 'eth_blockNumber', params: [] },
      { method: 'eth_getTransactionCount', params: [relayer, 'latest'] },
    ],
    signal,
  )
  return {
    chainId: readAs(Quantity, chainId),
    blockNumber: readAs(Quantity, blockNumber),
    nonce: readAs(Quantity, nonce),
  }
}

/** Receipts in the order of the hashes; null for a transaction that is in no block the endpoint knows. Throws RpcError. */
export async function fetchReceipts(
  rpc: Rpc,
  txHashes: readonly string[],
  signal?: AbortSignal,
): Promise<readonly (TransactionReceipt | null)[]> {
  const calls = txHashes.map((hash) => ({ method: 'eth_getTransactionReceipt', params: [hash] }))
  const replies = await rpc.batch(calls, signal)
  return txHashes.map((txHash, at) => {
    const receipt = readAs(Receipt.nullable(), replies[at])
    if (receipt === null) return null
    if (receipt.transactionHash !== txHash) {
      throw new RpcError('bad_answer', `expected the receipt of ${txHash}, got that of another transaction`)
    }
    return {
      txHash,
      blockNumber: receipt.blockNumber,
      blockHash: receipt.blockHash,
      succeeded: receipt.status === 1,
      gasUsed: receipt.gasUsed,
    }
  })
}

/** Hashes of the chain's blocks of these numbers; a number that the chain does not reach is left out. Throws RpcError. */
export async function fetchBlockHashes(
  rpc: Rpc,
  numbers: readonly number[],
  signal?: AbortSignal,
): Promise<ReadonlyMap<number, string>> {
  const calls = numbers.map((number) => ({
    method: 'eth_getBlockByNumber',
    params: [`0x${number.toString(16)}`, false],
  }))
  const replies = await rpc.batch(calls, signal)
  const hashes = new Map<number, string>()
  numbers.forEach((number, at) => {
    const block = readAs(Block.nullable(), replies[at])
    if (block !== null) hashes.set(number, block.hash)
  })
  return hashes
}

/** A block that is expected to stay, and the chain it is of. */
export type RecentBlock = {
  readonly chainId: number
  readonly number: number
  /** 0x, lower case. */
  readonly hash: string
}

/**
 * The block with `confirmations` blocks on top of it; the first one while the chain is shorter. Throws RpcError, also
 * when the endpoint does not have a block below its own newest (several nodes behind one address).
 */
export async function fetchRecentBlock(
  rpc: Rpc,
  confirmations: number,
  signal?: AbortSignal,
): Promise<RecentBlock> {
  const replies = await rpc.batch(
    [
      { method: 'eth_chainId', params: [] },
      { method: 'eth_blockNumber', params: [] },
    ],
    signal,
  )
  const number = Math.max(0, readAs(Quantity, replies[1]) - confirmations)
  const hash = (await fetchBlockHashes(rpc, [number], signal)).get(number)
  if (hash === undefined) throw new RpcError('bad_answer', `expected block ${number}, got none`)
  return { chainId: readAs(Quantity, replies[0]), number, hash }
}

/** What the account has, in wei. Throws RpcError. */
export async function fetchBalance(rpc: Rpc, address: string, signal?: AbortSignal): Promise<bigint> {
  const balance = await rpc.call('eth_getBalance', [address, 'latest'], signal)
  return BigInt(readAs(BigQuantity, { kind: 'result', value: balance }))
}

/** Whether a contract is at the address. Throws RpcError. */
export async function hasCode(rpc: Rpc, address: string, signal?: AbortSignal): Promise<boolean> {
  const code = await rpc.call('eth_getCode', [address, 'latest'], signal)
  return readAs(HexBytes, { kind: 'result', value: code }).length > 2
}

const Receipt = z.object({
  transactionHash: Hash,
  blockNumber: Quantity,
  blockHash: Hash,
  status: Quantity,
  gasUsed: Quantity,
})
const Block = z.object({ hash: Hash })
