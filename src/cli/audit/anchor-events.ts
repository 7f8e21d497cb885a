import { z } from 'zod'
import { RpcError } from '../../chain/rpc.ts'
import { ChainFault } from './chain-fault.ts'
import { type AnchorEvent, decodeAnchorEvent, EVENT_TOPICS, LogForm } from './chain-forms.ts'
import type { EventQuery } from './chain-source.ts'

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
