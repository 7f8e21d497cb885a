import type { ListingVerifier } from '../revocation/listing-verifier.ts'
import { type AuditTools, auditLog, type LogReport } from './audit-log.ts'
import type { AuditProgress } from './audit-report.ts'
import { ChainFault, type ChainSource } from './chain.ts'
import { describeHead } from './compare-heads.ts'
import { collectNamedHeads } from './documents.ts'
import { type AuditCheck, type Finding, type Ledger, openLedger } from './findings.ts'
import type { Gateway, ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { auditContracts, auditEarlierLogs } from './hidden-logs.ts'
import type { AuditState, SavedLog } from './saved-state.ts'

/** What became of an audit. */
export type AuditReport = {
  readonly logs: readonly LogReport[]
  /** Checks and findings of the gateway as a whole. */
  readonly checks: readonly AuditCheck[]
  readonly findings: readonly Finding[]
}

/**
 * Audits all logs of a gateway, or the one of `notary`, one after the other, newest first. A gateway that does not answer as it
 * must is a finding. Throws what the signal was aborted with, and CliError when the state cannot be kept.
 */
export async function runAudit(
  tools: Omit<AuditTools, 'payers' | 'named'> & { readonly verifier: ListingVerifier },
  given: { readonly notary: string | null; readonly state: AuditState; readonly progress: AuditProgress },
): Promise<AuditReport> {
  const { state, progress, notary } = given
  const ledger = openLedger(null)
  const { payers } = state
  const named = collectNamedHeads()
  const logs: LogReport[] = []
  // Before the logs are asked for: what the chain has by then, they must have.
  const newestBlock = await findNewestBlock(tools.chain, ledger)
  const found = await findLogs(tools.gateway, notary, (fault) => ledger.find(fault.code, fault))
  if (notary === null && found !== null) logs.push(...(await auditMissing(found, state)))
  for (const log of found ?? []) {
    progress.start(log.notary, log.size)
    const events = {
      progress: progress.update,
      save: (saved: Parameters<AuditState['save']>[1]) => state.save(log.notary, saved),
    }
    const saved = state.find(log.notary)
    try {
      logs.push(await auditLog(log, { ...tools, payers, named }, { saved, events }))
    } finally {
      await state.flush()
      progress.stop()
    }
  }
  if (found !== null && logs.length === 0) ledger.find('no_log', NO_LOG)
  if (found !== null) {
    const notaries = [...found.map((log) => log.notary), ...state.notaries()]
    const audited = { found, reports: logs, notaries, newestBlock, isOneLog: notary !== null }
    await auditEarlierLogs(named, { ...tools, ...audited, listed: new Set(notaries), ledger })
    await auditContracts(audited, { ...tools, payers, ledger })
  }
  for (const { message } of tools.verifier.unused())
    ledger.find('revocation_list_unused', { where: '--crl', message })
  return { logs, checks: ledger.checks(), findings: ledger.findings() }
}

/** An audit that checked nothing found no history clean. */
const NO_LOG = { where: 'logs', message: 'the gateway lists no log: nothing was checked' }

/** Null without a chain, or when it does not say. */
async function findNewestBlock(chain: ChainSource | null, ledger: Ledger): Promise<number | null> {
  try {
    return chain === null ? null : await chain.fetchNewestBlock()
  } catch (fault) {
    if (!(fault instanceof ChainFault)) throw fault
    ledger.find('chain_unreachable', { where: 'chain', message: fault.message })
    ledger.skipAll('the chain did not say which block is its newest')
    return null
  }
}

/** Logs that an earlier run came to, and that are not there any more. */
async function auditMissing(found: readonly ServedLog[], state: AuditState): Promise<readonly LogReport[]> {
  const served = new Set(found.map(({ notary }) => notary))
  const reports: LogReport[] = []
  for (const notary of state.notaries()) {
    const saved = state.find(notary)
    if (saved === null || served.has(notary)) continue
    const { report, findings } = reportMissingLog(notary, saved)
    await state.save(notary, { ...saved, findings })
    reports.push(report)
  }
  await state.flush()
  return reports
}

/** Null when the gateway does not say. */
async function findLogs(
  gateway: Gateway,
  notary: string | null,
  report: (fault: GatewayFault) => void,
): Promise<readonly ServedLog[] | null> {
  try {
    return notary === null ? await gateway.listLogs() : [await gateway.fetchLog(notary)]
  } catch (fault) {
    if (!(fault instanceof GatewayFault)) throw fault
    report(fault)
    return null
  }
}

/**
 * Gives the report of a log that an earlier run came to, and that the gateway does not list any more, with what was found
 * of it before: nobody would miss a log that is not asked for.
 */
export function reportMissingLog(
  notary: string,
  saved: SavedLog,
): { readonly report: LogReport; readonly findings: readonly Finding[] } {
  const ledger = openLedger(notary, saved.findings)
  const last = saved.head === null ? 'no head yet' : describeHead(saved.head)
  ledger.find('log_missing', {
    where: 'log',
    message: `the gateway does not list this log; the last audit found ${last} (a state file is for one gateway)`,
  })
  ledger.skipAll('the gateway does not list this log')
  const { size } = saved.edge
  const findings = ledger.findings()
  const counts = { startSize: size, endSize: size, headCount: 0, matched: saved.head, isComplete: false }
  return { report: { notary, size, ...counts, checks: ledger.checks(), findings }, findings }
}
