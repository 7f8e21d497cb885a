import { z } from 'zod'
import { type BlockRange, findFirstBlock } from '../../audit/find-block.ts'
import { BigQuantity, Hash, HexBytes, Quantity, readAs, readValue } from '../../audit/rpc-forms.ts'
import { type Rpc, RpcError, toQuantity } from '../../client/rpc.ts'

/** The state of the chain for one relayer, read in one batch. */
export type ChainView = {
  readonly chainId: number
  /** Number of the newest block. */
  readonly blockNumber: number
  /**
   * Number of the relayer's transactions in blocks. It is the nonce of the relayer's next
   * transaction.
   */
  readonly nonce: number
}

/** A transaction in a block. */
export type TransactionReceipt = {
  readonly txHash: string
  readonly blockNumber: number
  /** 0x, lower case. */
  readonly blockHash: string
  /** False when the receipt's status is 0 (reverted). */
  readonly succeeded: boolean
  readonly gasUsed: number
}

/** Reads chain id, newest block and the relayer's nonce. Throws RpcError. */
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
 * Returns the first unused nonce of the account. Counts transactions in blocks and transactions
 * that wait at the endpoint. Throws RpcError. Also throws RpcError if the endpoint serves a chain
 * other than `chainId`.
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
 * Returns receipts in the order of the hashes: null if the endpoint knows no block with the
 * transaction. Throws RpcError.
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

/**
 * Returns the hashes of the blocks with these numbers. Leaves out numbers above the newest block.
 * Throws RpcError.
 */
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

/** A block that will probably stay in the chain, and the id of its chain. */
export type RecentBlock = {
  readonly chainId: number
  readonly number: number
  /** 0x, lower case. */
  readonly hash: string
}

/**
 * Number of recent blocks whose state can be read. Geth keeps 128, the local chain of this project
 * 64.
 */
const STATES_KEPT = 60

/**
 * Returns a function that reads the block with `confirmations` blocks on top, or the contract's
 * first block if this is newer. The contract is searched only in the newest STATES_KEPT blocks, so
 * the first result may have fewer blocks on top. The function throws RpcError: `refused` while
 * there is no contract. It also throws RpcError if several nodes behind one address differ, and a
 * node lacks the block.
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
  /** The first block that has the contract. Null while it is not known. */
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
 * Returns the first block of the range with code at the address. Code is never removed. Throws
 * RpcError: `refused` if the last block has no code there.
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

/** The account's balance, in wei. Throws RpcError. */
export async function fetchBalance(
  rpc: Rpc,
  address: string,
  signal?: AbortSignal,
): Promise<bigint> {
  const balance = await rpc.call('eth_getBalance', [address, 'latest'], signal)
  return BigInt(readValue(BigQuantity, balance))
}

/**
 * Reads an account's balance and its number of transactions in blocks (nonce). `pendingNonce` also
 * counts the transactions that wait for a block. Throws RpcError.
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

/**
 * Returns true if a contract is at the address, after the given or the newest block. Throws
 * RpcError.
 */
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
