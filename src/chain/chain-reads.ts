import { z } from 'zod'
import { type BlockRange, findFirstBlock } from '#audit/find-block.ts'
import { BigQuantity, Hash, HexBytes, Quantity, readAs, readValue } from '#audit/rpc-forms.ts'
import { type Rpc, RpcError, toQuantity } from '#client/rpc.ts'

export type ChainView = {
  readonly chainId: number
  readonly blockNumber: number
  /** Number of the relayer's transactions in blocks. This is also its next nonce. */
  readonly nonce: number
}

export type TransactionReceipt = {
  readonly txHash: string
  readonly blockNumber: number
  /** 0x, lower case. */
  readonly blockHash: string
  readonly succeeded: boolean
  readonly gasUsed: number
}

export async function fetchChainView(
  rpc: Rpc,
  relayer: string,
  signal?: AbortSignal,
): Promise<ChainView> {
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

/**
 * Returns the account's next unused nonce, including transactions that wait at the endpoint. Throws
 * RpcError, also if the endpoint serves another chain than `chainId`.
 */
export async function countTransactions(
  rpc: Rpc,
  { address, chainId: expected }: { readonly address: string; readonly chainId: number },
  signal?: AbortSignal,
): Promise<number> {
  const counts = ['latest', 'pending'].map((block) => ({
    method: 'eth_getTransactionCount',
    params: [address, block],
  }))
  const [id, ...replies] = await rpc.batch(
    [{ method: 'eth_chainId', params: [] }, ...counts],
    signal,
  )
  const chainId = readAs(Quantity, id)
  if (chainId !== expected)
    throw new RpcError('bad_answer', `expected chain ${expected}, the endpoint serves ${chainId}`)
  return Math.max(...replies.map((reply) => readAs(Quantity, reply)))
}

/**
 * Returns receipts in the order of the hashes. Null for a transaction in no known block. Throws
 * RpcError.
 */
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
      throw new RpcError(
        'bad_answer',
        `expected the receipt of ${txHash}, got the receipt of another transaction`,
      )
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

/** Returns hashes by block number. Leaves out numbers above the newest block. Throws RpcError. */
export async function fetchBlockHashes(
  rpc: Rpc,
  numbers: readonly number[],
  signal?: AbortSignal,
): Promise<ReadonlyMap<number, string>> {
  const calls = numbers.map((number) => ({
    method: 'eth_getBlockByNumber',
    params: [toQuantity(number), false],
  }))
  const replies = await rpc.batch(calls, signal)
  const hashes = new Map<number, string>()
  numbers.forEach((number, at) => {
    const block = readAs(Block.nullable(), replies[at])
    if (block !== null) hashes.set(number, block.hash)
  })
  return hashes
}

/** A block that a reorganisation will hardly remove. */
export type RecentBlock = {
  readonly chainId: number
  readonly number: number
  /** 0x, lower case. */
  readonly hash: string
}

/**
 * The state can be read for at least this many recent blocks. Geth keeps 128, this project's local
 * chain 64.
 */
const STATES_KEPT = 60

/**
 * Returns a function that reads the block with `confirmations` blocks on top. If the contract is
 * newer, reads the contract's first block instead. Only the newest STATES_KEPT blocks are searched
 * for that block, so the result may have only STATES_KEPT blocks on top. The function throws
 * RpcError: `refused` without a contract, and `bad_answer` if a node behind the endpoint lacks the
 * block.
 */
export function createRecentBlocks({
  rpc,
  contract,
  confirmations,
}: {
  readonly rpc: Rpc
  readonly contract: string
  readonly confirmations: number
}): (signal?: AbortSignal) => Promise<RecentBlock> {
  /** The first block that has the contract. */
  let knownFrom: number | null = null
  return async (signal) => {
    const replies = await rpc.batch(
      [
        { method: 'eth_chainId', params: [] },
        { method: 'eth_blockNumber', params: [] },
      ],
      signal,
    )
    const newest = readAs(Quantity, replies[1])
    const wanted = Math.max(0, newest - confirmations)
    if (knownFrom === null || knownFrom > wanted) {
      const fromBlock = Math.max(wanted, newest - STATES_KEPT)
      knownFrom = await findFirstWithCode(rpc, contract, { fromBlock, toBlock: newest, signal })
    }
    const number = Math.max(wanted, knownFrom)
    const hash = (await fetchBlockHashes(rpc, [number], signal)).get(number)
    if (hash === undefined) throw new RpcError('bad_answer', `expected block ${number}, got none`)
    return { chainId: readAs(Quantity, replies[0]), number, hash }
  }
}

/**
 * Returns the first block with code. A binary search works, because code is never removed. Throws
 * RpcError `refused` if the last block has no code.
 */
async function findFirstWithCode(
  rpc: Rpc,
  address: string,
  { fromBlock, toBlock, signal }: BlockRange & { readonly signal: AbortSignal | undefined },
): Promise<number> {
  const isThere = (block: number) => hasCode(rpc, address, signal, toQuantity(block))
  // Usually the contract is older than the range, so one call is enough.
  if (await isThere(fromBlock)) return fromBlock
  if (!(await isThere(toBlock)))
    throw new RpcError('refused', `expected a contract at ${address}, found none`)
  return await findFirstBlock<never>({ fromBlock: fromBlock + 1, toBlock }, isThere)
}

export async function fetchBalance(
  rpc: Rpc,
  address: string,
  signal?: AbortSignal,
): Promise<bigint> {
  const balance = await rpc.call('eth_getBalance', [address, 'latest'], signal)
  return BigInt(readValue(BigQuantity, balance))
}

/**
 * `nonce` counts transactions in blocks. `pendingNonce` also counts waiting transactions. Throws
 * RpcError.
 */
export async function fetchAccountFacts(
  rpc: Rpc,
  address: string,
  signal?: AbortSignal,
): Promise<{
  readonly balanceWei: bigint
  readonly nonce: number
  readonly pendingNonce: number
}> {
  const [balance, nonce, pendingNonce] = await rpc.batch(
    [
      { method: 'eth_getBalance', params: [address, 'latest'] },
      { method: 'eth_getTransactionCount', params: [address, 'latest'] },
      { method: 'eth_getTransactionCount', params: [address, 'pending'] },
    ],
    signal,
  )
  return {
    balanceWei: BigInt(readAs(BigQuantity, balance)),
    nonce: readAs(Quantity, nonce),
    pendingNonce: readAs(Quantity, pendingNonce),
  }
}

/** `block` is a quantity in 0x hex or a tag. Throws RpcError. */
export async function hasCode(
  rpc: Rpc,
  address: string,
  signal?: AbortSignal,
  block = 'latest',
): Promise<boolean> {
  const code = await rpc.call('eth_getCode', [address, block], signal)
  return readValue(HexBytes, code).length > 2
}

const Receipt = z.object({
  transactionHash: Hash,
  blockNumber: Quantity,
  blockHash: Hash,
  status: Quantity,
  gasUsed: Quantity,
})
const Block = z.object({ hash: Hash })
