import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { AFFIDAVIT } from '#attestation/contract/artifact.ts'
import { type Rpc, type RpcCall, RpcError, type RpcReply, toQuantity } from '#client/rpc.ts'
import { type BlockRange, findFirstBlock } from './find-block.ts'
import { Address, Hash, HexBytes, Quantity } from './rpc-forms.ts'

/** Maximum number of attempts. The pause between two attempts doubles, up to 4 s. */
export const CHAIN_ATTEMPTS_MAX = 6
const BACK_OFF_MIN_MS = 250

/**
 * The chain's endpoint does not answer, or its answer is invalid. The requested data stays
 * unchecked.
 */
export class ChainFault extends Error {
  override readonly name = 'ChainFault'
  readonly code = 'chain_unreachable'
  readonly where = 'chain'
}

const Bytes = HexBytes.transform((text) => decodeHex(text))

const BlockForm = z.object({ hash: Hash, timestamp: Quantity })

const TransactionForm = z.object({
  hash: Hash,
  from: Address,
  nonce: Quantity,
  /** Null if the transaction creates a contract. */
  to: Address.nullable(),
  input: Bytes,
})

/** Only the members that identify a transaction are read. */
const FullBlockForm = z.object({
  transactions: z.array(z.object({ hash: Hash, from: Address, nonce: Quantity })),
})

const LogForm = z.object({
  address: Address,
  topics: z.array(Hash).max(4),
  data: Bytes,
  blockNumber: Quantity,
  transactionHash: Hash,
})

const ReceiptForm = z.object({
  transactionHash: Hash,
  blockNumber: Quantity,
  blockHash: Hash,
  status: Quantity,
  contractAddress: Address.nullish(),
  logs: z.array(LogForm),
})

export type ChainReceipt = z.infer<typeof ReceiptForm>
export type ChainBlock = z.infer<typeof BlockForm>

/** Addresses are 0x, lower case. `receipt` is null while no block contains the transaction. */
export type ChainAnchor = z.infer<typeof TransactionForm> & {
  readonly receipt: ChainReceipt | null
}

type EventQuery = BlockRange & {
  readonly contract: string
  /** Null: events of all notaries. */
  readonly notary: string | null
}

/** An EVM chain, read through an endpoint that the auditor trusts. All methods throw ChainFault. */
export type ChainSource = Awaited<ReturnType<typeof openChainSource>>

/** Requests the chain's id immediately. `sleep` waits between attempts. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one client
export async function openChainSource(
  rpc: Pick<Rpc, 'call' | 'batch'>,
  {
    sleep,
    signal,
  }: { readonly sleep: (durationMs: number) => Promise<void>; readonly signal: AbortSignal },
) {
  /** Retries a request, unless the endpoint refused it or the answer is too large. */
  async function retrying<Value>(ask: () => Promise<Value>): Promise<Value> {
    for (let tried = 1; ; tried++) {
      try {
        return await ask()
      } catch (fault) {
        signal.throwIfAborted()
        if (
          !(fault instanceof RpcError) ||
          fault.code === 'refused' ||
          fault.code === 'answer_too_large'
        )
          throw fault
        if (tried === CHAIN_ATTEMPTS_MAX) throw new ChainFault(fault.message, { cause: fault })
        await sleep(BACK_OFF_MIN_MS * 2 ** (tried - 1))
      }
    }
  }

  /**
   * Splits the batch into halves if the answer is too large. The gateway chooses the transactions,
   * which can be large.
   */
  async function batch(calls: readonly RpcCall[]): Promise<readonly RpcReply[]> {
    try {
      return await retrying(() => rpc.batch(calls, signal))
    } catch (fault) {
      const isTooLarge = fault instanceof RpcError && fault.code === 'answer_too_large'
      if (!isTooLarge || calls.length === 1) return refuse(fault)
      const middle = Math.ceil(calls.length / 2)
      const first = await batch(calls.slice(0, middle))
      return [...first, ...(await batch(calls.slice(middle)))]
    }
  }

  async function ask<Value>(form: z.ZodType<Value>, method: string, ...params: readonly unknown[]) {
    const value = await retrying(() => rpc.call(method, params, signal)).catch(refuse)
    return readAs(form, { kind: 'result', value })
  }

  /**
   * Returns null if the endpoint refuses. Most endpoints keep only the state of the latest blocks.
   */
  async function readState<Value>(
    form: z.ZodType<Value>,
    { method, params }: RpcCall,
  ): Promise<Value | null> {
    try {
      const value = await retrying(() => rpc.call(method, params, signal))
      return readAs(form, { kind: 'result', value })
    } catch (fault) {
      return fault instanceof RpcError && fault.code === 'refused' ? null : refuse(fault)
    }
  }

  /** Returns true if the address has code at the end of `block`. Null if the state is missing. */
  async function hadCode(address: string, block: number): Promise<boolean | null> {
    const code = await readState(HexBytes, {
      method: 'eth_getCode',
      params: [address, toQuantity(block)],
    })
    return code === null ? null : code !== '0x'
  }

  /** Counts the transactions from the address up to this block. Null if the state is missing. */
  function countSent(address: string, block: number): Promise<number | null> {
    return readState(Quantity, {
      method: 'eth_getTransactionCount',
      params: [address, toQuantity(block)],
    })
  }

  return {
    chainId: await ask(Quantity, 'eth_chainId'),
    fetchNewestBlock: () => ask(Quantity, 'eth_blockNumber'),
    countSent,

    /** Returns the anchors in the order of the hashes. Null for an unknown transaction. */
    async fetchAnchors(txHashes: readonly string[]): Promise<readonly (ChainAnchor | null)[]> {
      const replies = await batch(
        txHashes.flatMap((hash) => [
          { method: 'eth_getTransactionByHash', params: [hash] },
          { method: 'eth_getTransactionReceipt', params: [hash] },
        ]),
      )
      return txHashes.map((hash, at) => {
        const transaction = readAs(TransactionForm.nullable(), replies[2 * at])
        const receipt = readAs(ReceiptForm.nullable(), replies[2 * at + 1])
        if (transaction === null) return null
        if (transaction.hash !== hash || (receipt !== null && receipt.transactionHash !== hash))
          throw new ChainFault(`the endpoint gave another transaction than ${hash}`)
        return { ...transaction, receipt }
      })
    },

    /** Returns the senders in the order of the hashes. Null for an unknown transaction. */
    async fetchSenders(txHashes: readonly string[]): Promise<readonly (string | null)[]> {
      const calls = txHashes.map((hash) => ({ method: 'eth_getTransactionByHash', params: [hash] }))
      const replies = await batch(calls)
      return txHashes.map((_, at) => readAs(TransactionForm.nullable(), replies[at])?.from ?? null)
    },

    /** The result lacks blocks that the chain has not reached. */
    async fetchBlocks(numbers: readonly number[]): Promise<ReadonlyMap<number, ChainBlock>> {
      const replies = await batch(
        numbers.map((number) => ({
          method: 'eth_getBlockByNumber',
          params: [toQuantity(number), false],
        })),
      )
      const blocks = numbers.map(
        (number, at) => [number, readAs(BlockForm.nullable(), replies[at])] as const,
      )
      return new Map(blocks.flatMap(([number, block]) => (block === null ? [] : [[number, block]])))
    },

    eventPages: (query: EventQuery) =>
      readEventPages((filter) => retrying(() => rpc.call('eth_getLogs', [filter], signal)), query),

    /** Returns true if the code at the address is the contract of this release. */
    async hasContract(address: string): Promise<boolean> {
      const code = await ask(HexBytes, 'eth_getCode', address, 'latest')
      return code.toLowerCase() === AFFIDAVIT.deployedBytecode.toLowerCase()
    },

    /** Finds the deployment in about 25 calls. Null if the endpoint lacks the old states. */
    findDeployment: (contract: string, toBlock: number): Promise<number | null> =>
      findFirstBlock({ fromBlock: 0, toBlock }, (block) => hadCode(contract, block)),

    /**
     * Finds the transaction that the account sent with this nonce. `txHash` is null if `block` does
     * not list the transaction. Returns null if the endpoint lacks the state of old blocks.
     */
    async findSent(
      { from, nonce }: { readonly from: string; readonly nonce: number },
      range: BlockRange,
    ): Promise<{ readonly txHash: string | null; readonly block: number } | null> {
      const block = await findFirstBlock(range, async (at) => {
        const count = await countSent(from, at)
        return count === null ? null : count > nonce
      })
      if (block === null) return null
      const { transactions } = await ask(
        FullBlockForm,
        'eth_getBlockByNumber',
        toQuantity(block),
        true,
      )
      const found = transactions.find((one) => one.from === from && one.nonce === nonce)
      return { txHash: found?.hash ?? null, block }
    },
  }
}

/** Throws ChainFault for an RpcError. Throws other faults unchanged. */
function refuse(fault: unknown): never {
  if (fault instanceof RpcError) throw new ChainFault(fault.message, { cause: fault })
  throw fault
}

function readAs<Value>(form: z.ZodType<Value>, reply: RpcReply | undefined): Value {
  if (reply?.kind === 'error') throw new ChainFault(`the endpoint refused: ${reply.message}`)
  const parsed = form.safeParse(reply?.value)
  if (parsed.success) return parsed.data
  throw new ChainFault(`the endpoint's answer has a wrong form: ${parsed.error.issues[0]?.message}`)
}

const EVENT_KINDS = ['anchored', 'equivocation'] as const

/** Roots are 32 bytes. */
export type AnchorEvent = {
  readonly kind: (typeof EVENT_KINDS)[number]
  /** 0x, lower case. Any contract can emit such events. */
  readonly address: string
  readonly notary: string
  readonly size: number
  /** For an equivocation: the root that the contract received second. */
  readonly root: Uint8Array
  /** For an equivocation: the root that the contract received first. Otherwise null. */
  readonly kept: Uint8Array | null
  readonly blockNumber: number
  readonly txHash: string
}

/** First topics of the contract's events: see contracts/Affidavit.sol. */
const EVENT_TOPICS = {
  anchored: topicOf('Anchored(address,uint64,bytes32)'),
  equivocation: topicOf('Equivocation(address,uint64,bytes32,bytes32)'),
} as const

/** Returns null if the entry is not an event of the contract. */
export function decodeAnchorEvent(entry: z.infer<typeof LogForm>): AnchorEvent | null {
  const [topic, notary, size] = entry.topics
  const kind = EVENT_KINDS.find((one) => EVENT_TOPICS[one] === topic)
  if (kind === undefined || notary === undefined || size === undefined || entry.topics.length !== 3)
    return null
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

function topicOf(signature: string): string {
  return `0x${encodeHex(keccak_256(encodeUtf8(signature)))}`
}

/** Some endpoints accept a query for more blocks, but take too long. */
const BLOCKS_PER_QUESTION_MAX = 1_000_000

/**
 * Reads events in pages of blocks. Repeats a refused query with half as many blocks, because each
 * endpoint has its own limit. After a success, the next page has twice as many. Throws ChainFault.
 */
export async function* readEventPages(
  getLogs: (filter: object) => Promise<unknown>,
  { contract, notary, fromBlock, toBlock }: EventQuery,
): AsyncGenerator<readonly AnchorEvent[]> {
  const kinds = EVENT_KINDS.map((kind) => EVENT_TOPICS[kind])
  const topics = notary === null ? [kinds] : [kinds, `0x${'0'.repeat(24)}${notary.slice(2)}`]
  let span = Math.min(toBlock - fromBlock + 1, BLOCKS_PER_QUESTION_MAX)
  for (let from = fromBlock; from <= toBlock; ) {
    const to = Math.min(from + span - 1, toBlock)
    const filter = {
      address: contract,
      topics,
      fromBlock: toQuantity(from),
      toBlock: toQuantity(to),
    }
    const entries = await getLogs(filter).catch(asRefusal)
    if (entries instanceof RpcError) {
      if (span === 1)
        throw new ChainFault(`the events of block ${from} cannot be read: ${entries.message}`)
      span = Math.ceil(Math.min(span, to - from + 1) / 2)
      continue
    }
    const parsed = Entries.safeParse(entries)
    if (!parsed.success) throw new ChainFault("the endpoint's events have a wrong form")
    yield parsed.data
      .map(decodeAnchorEvent)
      .filter((event) => event !== null)
      .filter((event) => event.address === contract && (notary === null || event.notary === notary))
    from = to + 1
    span = Math.min(span * 2, BLOCKS_PER_QUESTION_MAX)
  }
}

const Entries = z.array(LogForm)

function asRefusal(fault: unknown): RpcError {
  if (fault instanceof RpcError) return fault
  throw fault
}
