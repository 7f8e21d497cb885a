import { decodeHex, equalBytes } from '#attestation/bytes.ts'
import type { GatewayContext, LogReport } from './audit-context.ts'
import { type AnchorEvent, ChainFault } from './chain.ts'
import { isConsistent } from './compare-heads.ts'
import type { ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import type { NamedHead } from './known-heads.ts'
import { auditRelayers, reportHidden, type SearchContext } from './relayers.ts'

/**
 * Searches the chain for logs that the gateway does not list: in the contracts of the listed logs,
 * and in the transactions of the gateway's relayers. Never throws because of an answer from the
 * chain.
 */
export async function searchContracts(audited: GatewayContext): Promise<void> {
  const { chain, newestBlock: toBlock, ledger, payers, isOneLog } = audited
  if (chain === null || toBlock === null || isOneLog) {
    const reason = isOneLog
      ? 'the audit was limited to one log (--notary)'
      : 'no chain was given (--rpc)'
    for (const check of ['logs in the contract', 'transactions of relayers'] as const)
      ledger.skip(check, reason)
    return
  }
  const contracts = new Set<string>()
  try {
    for (const { domain } of audited.found) {
      const { chainId, contract } = domain
      if (chainId !== chain.chainId || contracts.has(contract)) continue
      if (await chain.hasContract(contract)) contracts.add(contract)
    }
    const context = { ...audited, chain, toBlock, contracts, hidden: new Set<string>() }
    if (!payers.isWhole) ledger.skip('logs in the contract', PAYERS_UNKNOWN)
    if (payers.addresses().length === 0)
      ledger.lack('logs in the contract', 'none of the served heads is anchored')
    else {
      for (const contract of contracts) await auditHiddenLogs(contract, context)
      ledger.pass('logs in the contract', audited.listed.size)
    }
    const unwalked = explainUnwalked(audited)
    if (unwalked === null) await auditRelayers(context)
    else ledger.skip('transactions of relayers', unwalked)
  } catch (fault) {
    if (!(fault instanceof ChainFault)) throw fault
    ledger.find(fault.code, fault)
    ledger.skipAll('the chain was not read to the end')
  }
}

const PAYERS_UNKNOWN =
  'an older version wrote the state file, without the accounts that paid for anchors'

/** Returns why some anchors were not checked. Null: all anchors were checked. */
function explainUnwalked({ reports, scope, payers }: GatewayContext): string | null {
  if (scope.from > 0 || scope.to !== null)
    return 'anchors of some heads were left out (--from, --to)'
  if (!payers.isWhole) return PAYERS_UNKNOWN
  return reports.every(({ isComplete }) => isComplete)
    ? null
    : 'the audit of a log was not finished'
}

/** The audit asks the chain for the senders of 50 anchors in one request. */
const BATCH_EVENTS_MAX = 50

/**
 * Reads every anchor in a contract. If a relayer of the gateway paid for an anchor of an unlisted
 * log, the gateway hides that log. Otherwise the log belongs to another gateway and is only
 * counted. Throws ChainFault.
 */
async function auditHiddenLogs(contract: string, context: SearchContext): Promise<void> {
  const { chain, ledger, listed, hidden, toBlock, scope } = context
  const made = await chain.findDeployment(contract, toBlock)
  const fromBlock = Math.max(scope.fromBlock, made ?? 0)
  if (scope.fromBlock > (made ?? 0))
    ledger.skip(
      'logs in the contract',
      `blocks before ${scope.fromBlock} were left out (--from-block)`,
    )
  const others = new Set<string>()
  for await (const events of chain.eventPages({ contract, notary: null, fromBlock, toBlock })) {
    const unlisted = events.filter(({ notary }) => !listed.has(notary))
    for (let start = 0; start < unlisted.length; start += BATCH_EVENTS_MAX)
      for (const notary of await judge(unlisted.slice(start, start + BATCH_EVENTS_MAX), context))
        others.add(notary)
  }
  const strangers = [...others].filter((notary) => !hidden.has(notary))
  if (strangers.length > 0)
    ledger.remark(
      'logs in the contract',
      `${strangers.length} logs of other gateways, in ${contract}, were not checked`,
    )
}

/** Reports the hidden logs. Returns the notaries of all `events`. */
async function judge(
  events: readonly AnchorEvent[],
  context: SearchContext,
): Promise<readonly string[]> {
  const { chain, payers, hidden } = context
  const open = events.filter(({ notary }) => !hidden.has(notary))
  const senders =
    open.length === 0 ? [] : await chain.fetchSenders(open.map(({ txHash }) => txHash))
  for (const [at, event] of open.entries()) {
    const sender = senders[at] ?? null
    if (sender !== null && payers.has(sender)) reportHidden(event, sender, context)
  }
  return events.map(({ notary }) => notary)
}

/**
 * Checks the heads that enclaves received at their start. Each head must belong to a listed log,
 * and the log must extend the head. Never throws because of an answer from the gateway.
 */
export async function auditEarlierLogs(audited: GatewayContext): Promise<void> {
  const { named, found, reports, listed, isOneLog, ledger } = audited
  if (isOneLog) return ledger.skip('earlier logs', 'the audit was limited to one log (--notary)')
  if (named.isCut())
    ledger.skip('earlier logs', 'there were more heads than the limit of this check')
  const logs = new Map(found.map((log) => [log.notary, log]))
  const walked = new Map(reports.map((report) => [report.notary, report.matched]))
  for (const head of named.list()) {
    const log = logs.get(head.notary)
    if (log === undefined && !listed.has(head.notary)) {
      ledger.find('earlier_log_hidden', {
        where: `boot statement of ${head.by}`,
        message:
          `the gateway does not list the log of ${head.notary}, but it showed ${describe(head)} ` +
          'to an enclave at its start',
      })
    }
    if (log === undefined) continue
    const reason = await reasonAgainst(head, {
      ...audited,
      log,
      matched: walked.get(head.notary) ?? null,
    })
    if (reason === null) ledger.pass('earlier logs')
    else if (reason !== 'unknown')
      ledger.find('earlier_log_mismatch', {
        where: `boot statement of ${head.by}`,
        message: `an enclave was shown ${describe(head)} of log ${head.notary}, but ${reason}`,
      })
  }
}

/** Null: the log extends the head. */
async function reasonAgainst(
  head: NamedHead,
  given: GatewayContext & { readonly log: ServedLog; readonly matched: LogReport['matched'] },
): Promise<string | 'unknown' | null> {
  const { log, matched, gateway, ledger } = given
  const { notary, size } = head
  if (size > log.size) return `it is served with ${log.size} leaves`
  if (matched === null) {
    ledger.skip('earlier logs', 'some were not read, so there is no tree to compare with')
    return 'unknown'
  }
  const other = `it is served with another history: its ${matched.size} leaves have another root`
  const root = decodeHex(head.root)
  if (size === matched.size) return equalBytes(root, matched.root) ? null : other
  try {
    return (await isConsistent({ size, root }, matched, { gateway, notary })) ? null : other
  } catch (fault) {
    if (!(fault instanceof GatewayFault)) throw fault
    ledger.find(fault.code, fault)
    return 'unknown'
  }
}

function describe({ size, root, signature }: NamedHead): string {
  return `the head of size ${size}, root ${root}, signature ${signature}`
}
