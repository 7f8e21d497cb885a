import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { decodeHex, encodeHex, encodeUtf8 } from '../attestation/bytes.ts'
import { AFFIDAVIT } from '../attestation/contract/artifact.ts'
import { type Rpc, type RpcCall, RpcError, type RpcReply, toQuantity } from '../client/rpc.ts'
import { type BlockRange, findFirstBlock } from './find-block.ts'
import { Address, Hash, HexBytes, Quantity } from './rpc-forms.ts'

/**
 * How often the endpoint is asked before the audit gives up: five pauses, each twice as long as the
 * one before, the last of 4 s.
 */
export const CHAIN_ATTEMPTS_MAX = 6
const BACK_OFF_MIN_MS = 250

/**
 * The chain's endpoint cannot be asked, or makes no sense: what was to be read from it is not
 * audited.
 */
export class ChainFault extends Error {
  override readonly name = 'ChainFault'
  /** What it is as a finding. */
  readonly code = 'chain_unreachable'
  readonly where = 'chain'
}

const Bytes = HexBytes.transform((text) => decodeHex(text))

const BlockForm = z.object({ hash: Hash, timestamp: Quantity })

const TransactionForm = z.object({
  hash: Hash,
  from: Address,
  nonce: Quantity,
  /** Called account; null when a contract is created. */
  to: Address.nullable(),
  input: Bytes,
})

/** A block with its transactions, of each as much as finds one. */
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
  /** The contract that it created itself. */
  contractAddress: Address.nullish(),
  logs: z.array(LogForm),
})

export type ChainReceipt = z.infer<typeof ReceiptForm>
export type ChainBlock = z.infer<typeof BlockForm>

/**
 * What the chain has under a transaction's hash. Addresses are 0x, lower case; receipt: null while
 * it is in no block.
 */
export type ChainAnchor = z.infer<typeof TransactionForm> & {
  readonly receipt: ChainReceipt | null
}

type EventQuery = BlockRange & {
  readonly contract: string
  /** Null: of every notary. */
  readonly notary: string | null
}

/** The transaction that took this nonce of the account. */
type Sent = { readonly from: string; readonly nonce: number }

/**
 * An EVM chain, read through an endpoint that the auditor trusts to know it. All throw ChainFault.
 */
export type ChainSource = Awaited<ReturnType<typeof openChainSource>>

/** Gives the chain behind a client, asking its id at once. `sleep` waits between attempts. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one client
export async function openChainSource(
  rpc: Pick<Rpc, 'call' | 'batch'>,
  {
    sleep,
    signal,
  }: { readonly sleep: (durationMs: number) => Promise<void>; readonly signal: AbortSignal },
) {
  /**
   * Asks again what failed on the way. What the endpoint refuses, it would refuse again: that is
   * thrown as it is.
   */
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
   * Halves of the batch while the answer is too large: the gateway names the transactions, and may
   * name large ones.
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

  /** Null when the endpoint refuses: most keep the state of the last blocks alone. */
  async function readState<Value>(form: z.ZodType<Value>, call: RpcCall): Promise<Value | null> {
    const [reply] = await batch([call])
    return reply?.kind === 'error' ? null : readAs(form, reply)
  }

  /**
   * Whether there was code at the address after this block. Null when the endpoint keeps no state
   * of that time.
   */
  async function hadCode(address: string, block: number): Promise<boolean | null> {
    const code = await readState(HexBytes, {
      method: 'eth_getCode',
      params: [address, toQuantity(block)],
    })
    return code === null ? null : code !== '0x'
  }

  /** How many transactions an account had sent after this block; null as hadCode. */
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

    /** In the order of the hashes; null for a transaction that the endpoint does not know. */
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

    /**
     * Senders in the order of the hashes; null for a transaction that the endpoint does not know.
     */
    async fetchSenders(txHashes: readonly string[]): Promise<readonly (string | null)[]> {
      const calls = txHashes.map((hash) => ({ method: 'eth_getTransactionByHash', params: [hash] }))
      const replies = await batch(calls)
      return txHashes.map((_, at) => readAs(TransactionForm.nullable(), replies[at])?.from ?? null)
    },

    /** Blocks by number; a number that the chain does not reach is left out. */
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

    /** Events of a notary in the contract, or of all, in pages, in the order of the chain. */
    eventPages: (query: EventQuery) =>
      readEventPages((filter) => retrying(() => rpc.call('eth_getLogs', [filter], signal)), query),

    /** Whether the contract of this release stands at the address. */
    async hasContract(address: string): Promise<boolean> {
      const code = await ask(HexBytes, 'eth_getCode', address, 'latest')
      return code.toLowerCase() === AFFIDAVIT.deployedBytecode.toLowerCase()
    },

    /**
     * Gives the block in which the contract was made: a search of about 25 questions. Null when the
     * endpoint keeps no state of blocks that old.
     */
    findDeployment: (contract: string, toBlock: number): Promise<number | null> =>
      findFirstBlock({ fromBlock: 0, toBlock }, (block) => hadCode(contract, block)),

    /**
     * Gives the hash and block of the transaction that took a nonce of an account, which happened
     * in the range; no hash when that block has none of the account's with it. Null when the
     * endpoint keeps no state of blocks that old.
     */
    async findSent(
      { from, nonce }: Sent,
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

/** What the endpoint will not answer is not audited. */
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

/** What the contract says of a notary. Roots are 32 bytes. */
export type AnchorEvent = {
  readonly kind: (typeof EVENT_KINDS)[number]
  /** Who emitted it: 0x, lower case. Other contracts may emit events with the same topics. */
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
const EVENT_TOPICS = {
  anchored: topicOf('Anchored(address,uint64,bytes32)'),
  equivocation: topicOf('Equivocation(address,uint64,bytes32,bytes32)'),
} as const

/** The event that a log entry of the chain is, or null when it is none of the contract's. */
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

/** Blocks of one question, at most: over more, some endpoints do not refuse, but take too long. */
const BLOCKS_PER_QUESTION_MAX = 1_000_000

/**
 * Gives the contract's events of a notary, or of all, page by page. Endpoints bound how many blocks
 * or events one question may cover, each in another way: a question that is refused is asked of
 * half the blocks, and of twice as many again after that. Throws ChainFault.
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
