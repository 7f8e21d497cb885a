import type { ListingVerifier } from '#attestation/revocation/listing-verifier.ts'
import type { AuditReport, AuditTools, LogReport } from './audit-context.ts'
import { auditLog } from './audit-log.ts'
import { ChainFault, type ChainSource } from './chain.ts'
import { describeHead } from './compare-heads.ts'
import { type Ledger, openLedger } from './findings.ts'
import type { AuditedGateway, ServedLog } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { auditEarlierLogs, searchContracts } from './hidden-logs.ts'
import { collectNamedHeads } from './known-heads.ts'
import type { AuditState, SavedLog } from './saved-state.ts'

export type AuditProgress = {
  start(notary: string, size: number): void
  update(size: number): void
  stop(): void
}

/**
 * Audits a gateway's logs, newest first, or only the log of `notary`. A wrong answer from the
 * gateway is a finding. Throws the abort reason of the client's signal, and the errors of the state
 * store.
 */
export async function auditGateway(
  tools: Omit<AuditTools, 'payers' | 'requests' | 'named'> & { readonly verifier: ListingVerifier },
  given: {
    readonly notary: string | null
    readonly state: AuditState
    readonly progress: AuditProgress
  },
): Promise<AuditReport> {
  const { state, progress, notary } = given
  const ledger = openLedger(null)
  const { payers, requests } = state
  const named = collectNamedHeads()
  const logs: LogReport[] = []
  // The newest block is read before the logs, so the logs must contain all anchors up to this
  // block.
  const newestBlock = await findNewestBlock(tools.chain, ledger)
  const found = await findLogs(tools.gateway, notary, ledger)
  if (notary === null && found !== null) logs.push(...(await auditMissing(found, state)))
  for (const log of found ?? []) {
    progress.start(log.notary, log.size)
    const events = {
      progress: progress.update,
      save: (saved: SavedLog) => state.save(log.notary, saved),
    }
    const saved = state.find(log.notary)
    try {
      logs.push(await auditLog(log, { ...tools, payers, requests, named }, { saved, events }))
    } finally {
      await state.flush()
      progress.stop()
    }
  }
  if (found !== null && logs.length === 0) ledger.find('no_log', NO_LOG)
  if (found !== null) {
    const audited = {
      ...tools,
      payers,
      requests,
      named,
      ledger,
      found,
      newestBlock,
      reports: logs,
      listed: new Set([...found.map((log) => log.notary), ...state.notaries()]),
      isOneLog: notary !== null,
    }
    await auditEarlierLogs(audited)
    await searchContracts(audited)
  }
  for (const { message } of tools.verifier.unused())
    ledger.find('revocation_list_unused', { where: '--crl', message })
  return { logs, checks: ledger.checks(), findings: ledger.findings() }
}

/** An audit that checked nothing must not pass. */
const NO_LOG = { where: 'logs', message: 'the gateway lists no logs: nothing was checked' }

/** Null without a chain, or when the chain does not answer. */
async function findNewestBlock(chain: ChainSource | null, ledger: Ledger): Promise<number | null> {
  try {
    return chain === null ? null : await chain.fetchNewestBlock()
  } catch (fault) {
    if (!(fault instanceof ChainFault)) throw fault
    ledger.find(fault.code, fault)
    ledger.skipAll('the chain did not give its newest block')
    return null
  }
}

/** Reports the logs that an earlier run audited and that the gateway no longer lists. */
async function auditMissing(
  found: readonly ServedLog[],
  state: AuditState,
): Promise<readonly LogReport[]> {
  const served = new Set(found.map(({ notary }) => notary))
  const reports: LogReport[] = []
  for (const notary of state.notaries()) {
    const saved = state.find(notary)
    if (saved === null || served.has(notary)) continue
    const report = reportMissingLog(notary, saved)
    await state.save(notary, { ...saved, findings: report.findings })
    reports.push(report)
  }
  await state.flush()
  return reports
}

/** Returns null if the gateway's answer is missing or invalid. */
async function findLogs(
  gateway: AuditedGateway,
  notary: string | null,
  ledger: Ledger,
): Promise<readonly ServedLog[] | null> {
  try {
    return notary === null ? await gateway.listLogs() : [await gateway.fetchLog(notary)]
  } catch (fault) {
    if (!(fault instanceof GatewayFault)) throw fault
    ledger.find(fault.code, fault)
    return null
  }
}

function reportMissingLog(notary: string, saved: SavedLog): LogReport {
  const ledger = openLedger(notary, saved.findings)
  const last = saved.head === null ? 'no head yet' : describeHead(saved.head)
  ledger.find('log_missing', {
    where: 'log',
    message:
      `the gateway does not list this log; the last audit found ${last} ` +
      '(a state file is for one gateway)',
  })
  ledger.skipAll('the gateway does not list this log')
  const { size } = saved.edge
  return {
    notary,
    size,
    startSize: size,
    endSize: size,
    headCount: 0,
    matched: saved.head,
    isComplete: false,
    checks: ledger.checks(),
    findings: ledger.findings(),
  }
}
