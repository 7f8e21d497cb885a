import type { LogReport } from './audit-log.ts'
import type { Finding } from './findings.ts'
import { openLedger } from './ledger.ts'
import type { SavedLog } from './saved-log.ts'
import { describeHead } from './signed-heads.ts'

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
