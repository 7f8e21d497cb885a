import { encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { verifyConsistency } from '../../../attestation/merkle/verify.ts'
import type { TreeHead } from '../../../attestation/tree-head.ts'
import type { ServedLog } from './answers.ts'
import type { AnchorEvent } from './chain-forms.ts'
import type { ChainSource } from './chain-source.ts'
import type { Gateway } from './gateway.ts'
import type { HeadIndex } from './head-index.ts'
import type { Ledger } from './ledger.ts'
import { reasonAgainst } from './proof-audit.ts'
import { reportEquivocation } from './signed-heads.ts'

/** Heads in the contract that were not walked, and that the gateway is asked for one by one. */
export const LOOKUPS_MAX = 1_000

/** Blocks that are read again by the next run: they may have been replaced. */
export const REORGANISED_BLOCKS_MAX = 100

/**
 * Compares what the contract took of the notary with what the gateway serves: each head there must be one of those that
 * were walked (`index`), or one that the gateway gives when it is asked for it. Gives the newest block that was read.
 *
 * Anyone may bring a notary's head to the contract, also an old one again; that is no fault. Throws ChainFault, GatewayFault.
 */
export async function auditEvents(
  log: ServedLog,
  given: {
    readonly chain: ChainSource
    readonly gateway: Pick<Gateway, 'fetchHead' | 'fetchConsistency'>
    readonly ledger: Ledger
    readonly index: HeadIndex
    /** The newest head that the tree was built up to. */
    readonly newest: TreeHead | null
    readonly fromBlock: number
  },
): Promise<number> {
  const { chain, ledger, index, fromBlock } = given
  const toBlock = await chain.fetchNewestBlock()
  if (toBlock < fromBlock) return toBlock
  const { notary } = log
  let lookups = 0
  for await (const events of chain.eventPages({ ...log.domain, notary, fromBlock, toBlock })) {
    for (const event of events) {
      const known = index.compare(event)
      if (event.kind === 'equivocation') reportContract(ledger, event)
      else if (known === 'same') ledger.pass('heads on chain')
      else if (known === 'other')
        reportEquivocation(ledger, whereOf(event), [
          describe(event),
          'the head of that size that the gateway serves',
        ])
      else if (lookups < LOOKUPS_MAX) {
        lookups++
        await lookUp(event, given, notary)
      } else ledger.skip('heads on chain', `more than ${LOOKUPS_MAX} heads there are none of those walked`)
    }
  }
  return toBlock
}

/** A head that was not walked: before the range, after it, or hidden. */
async function lookUp(
  event: AnchorEvent,
  {
    gateway,
    ledger,
    newest,
    index,
  }: {
    readonly gateway: Pick<Gateway, 'fetchHead' | 'fetchConsistency'>
    readonly ledger: Ledger
    readonly newest: TreeHead | null
    readonly index: HeadIndex
  },
  notary: string,
): Promise<void> {
  const served = await gateway.fetchHead(notary, event.size)
  const where = whereOf(event)
  const told = describe(event)
  if (served === null)
    ledger.find('hidden_anchor', {
      where,
      message: `the contract took ${told}, which the gateway does not serve`,
    })
  else if (!equalBytes(served.root, event.root))
    reportEquivocation(ledger, where, [told, `root ${encodeHex(served.root)}, as the gateway serves it`])
  // It was kept from the walk, or lies after it: it must be of the same history all the same.
  else if (newest !== null && !(await isConsistent(event, newest, { gateway, notary })))
    reportEquivocation(ledger, where, [
      told,
      `the head of size ${newest.size}, which it is not consistent with`,
    ])
  else if (index.covers(event.size))
    ledger.find('head_missing', {
      where,
      message: `the list of heads lacks ${told}, which the gateway serves to whoever asks for its size`,
    })
  else ledger.pass('heads on chain')
}

/**
 * Whether the gateway proves that the larger head's log begins with the smaller one's. Throws
 * GatewayFault.
 */
export async function isConsistent(
  one: TreeHead,
  other: TreeHead,
  { gateway, notary }: { readonly gateway: Pick<Gateway, 'fetchConsistency'>; readonly notary: string },
): Promise<boolean> {
  const [first, second] = one.size <= other.size ? [one, other] : [other, one]
  const reason = await reasonAgainst(async () => {
    const path = await gateway.fetchConsistency(notary, first.size, second.size)
    verifyConsistency({ first, second, path })
  })
  return reason === null
}

function reportContract(ledger: Ledger, event: AnchorEvent): void {
  const kept = event.kept === null ? 'another root' : `root ${encodeHex(event.kept)}`
  reportEquivocation(ledger, whereOf(event), [describe(event), `${kept}, as the contract itself reports`])
}

function describe({ size, root, txHash }: AnchorEvent): string {
  return `size ${size}, root ${encodeHex(root)}, by transaction ${txHash}`
}

function whereOf({ blockNumber }: AnchorEvent): string {
  return `block ${blockNumber}`
}
