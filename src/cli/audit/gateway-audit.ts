import type { ServedLog } from './answers.ts'
import type { AuditTools, LogReport } from './audit-log.ts'
import { ChainFault } from './chain-fault.ts'
import { auditHiddenLogs } from './hidden-logs.ts'
import type { Ledger } from './ledger.ts'
import { auditRelayers } from './relayer-audit.ts'

/** What is known once all logs were audited. */
type AuditedGateway = {
  readonly found: readonly ServedLog[]
  readonly reports: readonly LogReport[]
  /** Of earlier runs too. */
  readonly notaries: Iterable<string>
  /** The newest block before the gateway was asked for its logs; null without a chain. */
  readonly newestBlock: number | null
  /** Only one log was asked for. */
  readonly isOneLog: boolean
}

/**
 * Looks on the chain for logs that the gateway does not list: in the contracts of those that it
 * lists, and in what its relayers sent. Never throws for what the chain says.
 */
export async function auditContracts(
  audited: AuditedGateway,
  {
    chain,
    ledger,
    ...tools
  }: Pick<AuditTools, 'chain' | 'payers' | 'fromBlock' | 'scope'> & { readonly ledger: Ledger },
): Promise<void> {
  const { newestBlock: toBlock, notaries } = audited
  const reason = explainUnseen(audited)
  if (chain === null || toBlock === null || reason !== null) {
    for (const check of ['logs in the contract', 'transactions of relayers'] as const)
      ledger.skip(check, reason ?? 'no chain was given (--rpc)')
    return
  }
  const { payers, scope, fromBlock } = tools
  const contracts = new Set<string>()
  try {
    for (const { chainId, contract } of audited.found.map(({ domain }) => domain))
      if (chainId === chain.chainId && !contracts.has(contract) && (await chain.hasContract(contract)))
        contracts.add(contract)
    const parts = {
      chain,
      ledger,
      payers,
      notaries: { listed: new Set(notaries), hidden: new Set<string>() },
    }
    if (!payers.isWhole)
      ledger.skip(
        'logs in the contract',
        'the state file is of a version that did not note who paid for anchors',
      )
    if (payers.addresses().length === 0)
      ledger.lack('logs in the contract', 'no head that is served is anchored')
    else {
      for (const contract of contracts) await auditHiddenLogs(contract, { ...parts, fromBlock, toBlock })
      ledger.pass('logs in the contract', parts.notaries.listed.size)
    }
    const unwalked = explainUnwalked(audited, { scope, isWhole: payers.isWhole })
    if (unwalked === null) await auditRelayers({ ...parts, contracts, toBlock })
    else ledger.skip('transactions of relayers', unwalked)
  } catch (fault) {
    if (!(fault instanceof ChainFault)) throw fault
    ledger.find('chain_unreachable', { where: 'chain', message: fault.message })
    ledger.skipAll('the chain was not read to the end')
  }
}

/** Why nothing can be said of what the gateway does not list. */
function explainUnseen({ isOneLog }: AuditedGateway): string | null {
  return isOneLog ? 'one log alone was asked for (--notary)' : null
}

/** Why there are served heads whose anchors were not looked at. */
function explainUnwalked(
  { reports }: AuditedGateway,
  { scope, isWhole }: { readonly scope: AuditTools['scope']; readonly isWhole: boolean },
): string | null {
  if (scope.from > 0 || scope.to !== null) return 'anchors of some heads were left out (--from, --to)'
  if (!isWhole) return 'the state file is of a version that did not note who paid for anchors'
  return reports.every(({ isComplete }) => isComplete) ? null : 'the audit of a log did not come to its end'
}
