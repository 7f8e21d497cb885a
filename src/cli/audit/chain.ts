import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { decodeHex, encodeHex, encodeUtf8 } from '../../../attestation/bytes.ts'
import { type BlockRange, findFirstBlock } from '../../chain/chain-reads.ts'
import { AFFIDAVIT } from '../../chain/contract/artifact.ts'
import { type Rpc, type RpcCall, RpcError, type RpcReply } from '../../chain/rpc.ts'

/** How often the endpoint is asked before the audit gives up. */
export const CHAIN_ATTEMPTS_MAX = 6
const BACK_OFF_FIRST_MS = 250

/** What the chain has under a transaction's hash. Addresses are 0x, lower case. */
export type ChainAnchor = {
  /** Who signed it, and paid for it. */
  readonly from: string
  readonly nonce: number
  /** Called account; null when a contract is created. */
  readonly to: string | null
  readonly input: Uint8Array
  /** Null while it is in no block. */
  readonly receipt: ChainReceipt | null
}

export type ChainReceipt = z.infer<typeof ReceiptForm>
export type ChainBlock = z.infer<typeof BlockForm>

/** An EVM chain, read through an endpoint that the auditor trusts to know it. All throw ChainFault. */
export type ChainSource = {
  readonly chainId: number
  fetchNewestBlock(): Promise<number>
  /** In the order of the hashes; null for a transaction that the endpoint does not know. */
  fetchAnchors(txHashes: readonly string[]): Promise<readonly (ChainAnchor | null)[]>
  /** Blocks by number; a number that the chain does not reach is left out. */
  fetchBlocks(numbers: readonly number[]): Promise<ReadonlyMap<number, ChainBlock>>
  /** Senders in the order of the hashes; null for a transaction that the endpoint does not know. */
  fetchSenders(txHashes: readonly string[]): Promise<readonly (string | null)[]>
  /** Events of a notary in the contract, or of all, in pages, in the order of the chain. */
  eventPages(query: EventQuery): AsyncIterable<readonly AnchorEvent[]>
  /** Whether the contract of this release stands at the address. */
  hasContract(address: string): Promise<boolean>
  /**
   * Whether there was code at the address after this block. Null when the endpoint keeps no state
   * of that time.
   */
  hadCode(address: string, block: number): Promise<boolean | null>
  /** How many transactions an account had sent after this block; null as hadCode. */
  countSent(address: string, block: number): Promise<number | null>
  /** Hash of the transaction of this account and nonce in the block; null when it is not there. */
  findInBlock(block: number, sent: { readonly from: string; readonly nonce: number }): Promise<string | null>
}

export type EventQuery = {
  readonly contract: string
  /** Null: of every notary. */
  readonly notary: string | null
  /** Inclusive. */
  readonly fromBlock: number
  readonly toBlock: number
}

/** Gives the chain behind a client, asking its id at once. `sleep` waits between attempts. */
export async function openChainSource(
  rpc: Pick<Rpc, 'call' | 'batch'>,
  { sleep, signal }: { readonly sleep: (durationMs: number) => Promise<void>; readonly signal: AbortSignal },
): Promise<ChainSource> {
  const retrying = createRetrying({ sleep, signal })
  const batch = (calls: readonly RpcCall[]) =>
    batchInParts((part) => retrying(() => rpc.batch(part, signal)), calls)
  const call = (method: string, params: readonly unknown[]) =>
    retrying(() => rpc.call(method, params, signal)).catch(refuse)

  async function fetchAnchors(txHashes: readonly string[]): Promise<readonly (ChainAnchor | null)[]> {
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
      const { from, nonce, to, input } = transaction
      return { from, nonce, to, input, receipt }
    })
  }

  /** Null when the endpoint refuses: most keep the state of the last blocks alone. */
  async function readState<Value>(
    form: z.ZodType<Value>,
    { method, address, block }: { readonly method: string; readonly address: string; readonly block: number },
  ): Promise<Value | null> {
    const [reply] = await batch([{ method, params: [address, quantity(block)] }])
    return reply?.kind === 'error' ? null : readAs(form, reply)
  }

  return {
    chainId: readAs(Quantity, { kind: 'result', value: await call('eth_chainId', []) }),
    fetchNewestBlock: async () =>
      readAs(Quantity, { kind: 'result', value: await call('eth_blockNumber', []) }),
    fetchAnchors,
    async fetchSenders(txHashes) {
      const replies = await batch(
        txHashes.map((hash) => ({ method: 'eth_getTransactionByHash', params: [hash] })),
      )
      return txHashes.map((_, at) => readAs(TransactionForm.nullable(), replies[at])?.from ?? null)
    },
    async hadCode(address, block) {
      const code = await readState(HexBytes, { method: 'eth_getCode', address, block })
      return code === null ? null : code !== '0x'
    },
    countSent: (address, block) => readState(Quantity, { method: 'eth_getTransactionCount', address, block }),
    async findInBlock(block, { from, nonce }) {
      const found = await call('eth_getBlockByNumber', [quantity(block), true])
      const { transactions } = readAs(FullBlockForm, { kind: 'result', value: found })
      return transactions.find((one) => one.from === from && one.nonce === nonce)?.hash ?? null
    },
    async fetchBlocks(numbers) {
      const replies = await batch(
        numbers.map((number) => ({ method: 'eth_getBlockByNumber', params: [quantity(number), false] })),
      )
      const blocks = numbers.map((number, at) => [number, readAs(BlockForm.nullable(), replies[at])] as const)
      return new Map(blocks.flatMap(([number, block]) => (block === null ? [] : [[number, block]])))
    },
    eventPages: (query) =>
      readEventPages((params) => retrying(() => rpc.call('eth_getLogs', [params], signal)), query),
    async hasContract(address) {
      const code = await call('eth_getCode', [address, 'latest'])
      return readAs(HexBytes, { kind: 'result', value: code }) === AFFIDAVIT.deployedBytecode.toLowerCase()
    },
  }
}

/** A number as the Ethereum JSON-RPC specification writes it. */
export function quantity(value: number): string {
  return `0x${value.toString(16)}`
}

type Retrying = <Value>(ask: () => Promise<Value>) => Promise<Value>

/** Asks again what failed on the way. What the endpoint refuses, it would refuse again: that is thrown as it is. */
function createRetrying({
  sleep,
  signal,
}: {
  readonly sleep: (durationMs: number) => Promise<void>
  readonly signal: AbortSignal
}): Retrying {
  return async (ask) => {
    for (let tried = 1; ; tried++) {
      try {
        return await ask()
      } catch (fault) {
        signal.throwIfAborted()
        if (!(fault instanceof RpcError) || fault.code === 'refused' || fault.code === 'answer_too_large')
          throw fault
        if (tried === CHAIN_ATTEMPTS_MAX) throw new ChainFault(fault.message, { cause: fault })
        await sleep(BACK_OFF_FIRST_MS * 2 ** (tried - 1))
      }
    }
  }
}

/**
 * Sends a batch, and halves of it while the answer is too large: the gateway names the transactions, and may name large
 * ones. Throws ChainFault.
 */
async function batchInParts(
  send: (calls: readonly RpcCall[]) => Promise<readonly RpcReply[]>,
  calls: readonly RpcCall[],
): Promise<readonly RpcReply[]> {
  try {
    return await send(calls)
  } catch (fault) {
    const isTooLarge = fault instanceof RpcError && fault.code === 'answer_too_large'
    if (!isTooLarge || calls.length === 1) return refuse(fault)
    const middle = Math.ceil(calls.length / 2)
    const first = await batchInParts(send, calls.slice(0, middle))
    return [...first, ...(await batchInParts(send, calls.slice(middle)))]
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
  throw new ChainFault(`the endpoint's answer is not what it should be: ${parsed.error.issues[0]?.message}`)
}

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
  const kinds = [EVENT_TOPICS.anchored, EVENT_TOPICS.equivocation]
  const topics = notary === null ? [kinds] : [kinds, `0x${'0'.repeat(24)}${notary.slice(2)}`]
  let span = Math.min(toBlock - fromBlock + 1, BLOCKS_PER_QUESTION_MAX)
  for (let from = fromBlock; from <= toBlock; ) {
    const to = Math.min(from + span - 1, toBlock)
    const filter = { address: contract, topics, fromBlock: hex(from), toBlock: hex(to) }
    const entries = await getLogs(filter).catch(asRefusal)
    if (entries instanceof RpcError) {
      if (span === 1) throw new ChainFault(`the events of block ${from} cannot be read: ${entries.message}`)
      span = Math.ceil(Math.min(span, to - from + 1) / 2)
      continue
    }
    yield readEvents(entries, { contract, notary })
    from = to + 1
    span = Math.min(span * 2, BLOCKS_PER_QUESTION_MAX)
  }
}

const Entries = z.array(LogForm)

function readEvents(
  entries: unknown,
  { contract, notary }: Pick<EventQuery, 'contract' | 'notary'>,
): readonly AnchorEvent[] {
  const parsed = Entries.safeParse(entries)
  if (!parsed.success) throw new ChainFault("the endpoint's events are not what they should be")
  return parsed.data
    .map(decodeAnchorEvent)
    .filter((event) => event !== null)
    .filter((event) => event.address === contract && (notary === null || event.notary === notary))
}

function asRefusal(fault: unknown): RpcError {
  if (fault instanceof RpcError) return fault
  throw fault
}

function hex(value: number): string {
  return `0x${value.toString(16)}`
}

/**
 * Gives the block in which the contract was made: a search of about 25 questions. Null when the
 * endpoint keeps no state of blocks that old. Throws ChainFault.
 */
export async function findDeployment(
  chain: Pick<ChainSource, 'hadCode'>,
  contract: string,
  toBlock: number,
): Promise<number | null> {
  return await findFirstBlock({ fromBlock: 0, toBlock }, (block) => chain.hadCode(contract, block))
}

/**
 * Gives the hash and block of the transaction that took a nonce of an account, which happened in
 * the range; no hash when that block has none of the account's with it. Null when the endpoint
 * keeps no state of blocks that old. Throws ChainFault.
 */
export async function findSent(
  chain: Pick<ChainSource, 'countSent' | 'findInBlock'>,
  sent: { readonly from: string; readonly nonce: number },
  range: BlockRange,
): Promise<{ readonly txHash: string | null; readonly block: number } | null> {
  const block = await findFirstBlock(range, async (at) => {
    const count = await chain.countSent(sent.from, at)
    return count === null ? null : count > sent.nonce
  })
  if (block === null) return null
  return { txHash: await chain.findInBlock(block, sent), block }
}

/** The chain's endpoint cannot be asked, or makes no sense: what was to be read from it is not audited. */
export class ChainFault extends Error {
  override readonly name = 'ChainFault'
}
