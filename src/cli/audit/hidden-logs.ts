import type { AnchorEvent } from './chain-forms.ts'
import { findDeployment } from './chain-search.ts'
import type { ChainSource } from './chain-source.ts'
import type { Ledger } from './ledger.ts'
import type { Payers } from './payers.ts'

/** Most anchors of unlisted logs whose senders are asked for at once. */
const BATCH_EVENTS_MAX = 50

/** Which logs of a contract are known, and what was found of the others. */
export type Notaries = {
  /** Addresses of the logs that the gateway lists, and of those that an earlier run came to. */
  readonly listed: ReadonlySet<string>
  /** Notaries that were reported. */
  readonly hidden: Set<string>
}

/**
 * Reads every anchor in a contract since its deployment. When a relayer of the gateway paid for an
 * anchor of a log that the gateway does not list, the gateway hides that log. Logs whose anchors
 * others paid for are other people's; they are counted. Throws ChainFault.
 */
export async function auditHiddenLogs(
  contract: string,
  given: {
    readonly chain: ChainSource
    readonly ledger: Ledger
    readonly payers: Payers
    readonly notaries: Notaries
    readonly fromBlock: number
    readonly toBlock: number
  },
): Promise<void> {
  const { chain, ledger, notaries, toBlock } = given
  const made = await findDeployment(chain, contract, toBlock)
  const fromBlock = Math.max(given.fromBlock, made ?? 0)
  if (given.fromBlock > (made ?? 0))
    ledger.skip('logs in the contract', `blocks before ${given.fromBlock} were left out (--from-block)`)
  const others = new Set<string>()
  for await (const events of chain.eventPages({ contract, notary: null, fromBlock, toBlock })) {
    const unlisted = events.filter(({ notary }) => !notaries.listed.has(notary))
    for (let start = 0; start < unlisted.length; start += BATCH_EVENTS_MAX)
      for (const notary of await judge(unlisted.slice(start, start + BATCH_EVENTS_MAX), given))
        others.add(notary)
  }
  const strangers = [...others].filter((notary) => !notaries.hidden.has(notary))
  if (strangers.length > 0)
    ledger.note('logs in the contract', `${strangers.length} of others, in ${contract}, were not looked at`)
}

/** Gives the notaries of these events. */
async function judge(
  events: readonly AnchorEvent[],
  {
    chain,
    ledger,
    payers,
    notaries: { hidden },
  }: {
    readonly chain: ChainSource
    readonly ledger: Ledger
    readonly payers: Payers
    readonly notaries: Notaries
  },
): Promise<readonly string[]> {
  const open = events.filter(({ notary }) => !hidden.has(notary))
  const senders = open.length === 0 ? [] : await chain.fetchSenders(open.map(({ txHash }) => txHash))
  for (const [at, event] of open.entries()) {
    const sender = senders[at] ?? null
    if (sender !== null && payers.has(sender)) reportHidden(event, { ledger, hidden, sender })
  }
  return events.map(({ notary }) => notary)
}

/**
 * Notes that the gateway hides the log of a notary: once, by the first anchor of it that is seen.
 */
export function reportHidden(
  anchor: Pick<AnchorEvent, 'notary' | 'size' | 'blockNumber' | 'txHash'> & { readonly address: string },
  {
    ledger,
    hidden,
    sender,
  }: { readonly ledger: Ledger; readonly hidden: Set<string>; readonly sender: string },
): void {
  if (hidden.has(anchor.notary)) return
  hidden.add(anchor.notary)
  ledger.find('hidden_log', {
    where: `block ${anchor.blockNumber}`,
    message: `the gateway does not list the log of ${anchor.notary}, though its relayer ${sender} paid for a head of it: size ${anchor.size}, in ${anchor.address}, by transaction ${anchor.txHash}`,
  })
}
